"""COCO's images as records: their pixels from the cache, with people padded to a fixed number of places."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from podline.data.coco_letterbox import LetterBox, areas_in_squares, boxes_in_squares, joints_in_squares, snapped
from podline.data.coco_masks import ignored_mask
from podline.data.coco_pixels import Pixels, ready_for_many
from podline.data.kept_jpegs import KeptLayout
from podline.data.keypoints import from_annotated
from podline.data.planning import ShardPlan, shard_order
from podline.data.records import IMAGE, RecordLayout, put
from podline.data.shards import Fill, Pieces
from podline.data.sources.coco_image import MASK_STRIDE, CocoImage
from podline.data.sources.coco_people import people_type, unpacked
from podline.data.sources.rawfiles import reading
from podline.data.tfrecord import Bytes, seal
from podline.documents.skeleton import Skeleton
from podline.errors import SourceError
from podline.store.contract import explained

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class CocoShardTask:
    """One shard to be written; what its images are is in a file of the plan's workspace.

    Attributes:
        plan: which.
        table: the plan's file, made by :func:`coco_tasks`: the shard's :class:`CocoImage` entries as JSON, one a line.
        side: of the square that images were put into, in pixels.
        max_people: places in a record.
        keep_jpeg: whether records hold the images' files instead of pixels.
        skeleton: of the people.
        threads: that make records.
    """

    plan: ShardPlan
    table: str
    side: int
    max_people: int
    keep_jpeg: bool
    skeleton: Skeleton
    threads: int = 1

    def filler(self, layout: RecordLayout, table: Path) -> Fill:
        """Return what fills the shard's records; see :meth:`podline.data.shards.Task.filler`."""
        ready_for_many()
        with explained("read", table):
            entries = [CocoImage.from_json(line) for line in table.read_text().splitlines()]
        kept, rows = KeptLayout(layout), {path: self._rows(path) for path in {image.pixels.path for image in entries}}

        def fill(frames: Bytes, start: int) -> Pieces:
            images = entries[start : start + len(frames)]
            # Pixels, most of a record, go to their place in it; there is no other copy of them.
            for image, square in zip(images, layout.values(frames, IMAGE), strict=True):
                copy_pixels(image, rows[image.pixels.path], square)
            columns = annotations_of(images, self.side, self.max_people, self.skeleton)
            for field in layout.fields:
                if field.name != IMAGE:
                    put(frames, field, columns[field.name])
            if self.keep_jpeg:
                pairs = zip(frames, images, strict=True)
                return [piece for frame, image in pairs for piece in kept.pieces(frame, image.place.read_same())]
            seal(frames)
            return [frames.data]

        return fill

    def _rows(self, path: str) -> Pixels:
        shape = (self.side, self.side, 3)
        with reading(path):
            count = Path(path).stat().st_size // math.prod(shape)
            return np.memmap(path, np.uint8, "r", shape=(count, *shape)) if count else np.empty((0, *shape), np.uint8)


def coco_tasks(
    splits: Mapping[str, Sequence[CocoImage]],
    plans: Iterable[ShardPlan],
    seed: int,
    folder: Path,
    task: Callable[[ShardPlan, str], CocoShardTask],
) -> list[CocoShardTask]:
    """Write a table of each shard's images and return the tasks that name them.

    Args:
        splits: what is converted.
        plans: its shards.
        seed: of the order in which records are put into shards.
        folder: an existing folder.
        task: makes a shard's task of its plan and its table.

    Raises:
        StoreError: the folder cannot be written.
    """
    orders = {name: shard_order(seed, name, len(images)).tolist() for name, images in splits.items()}
    tasks = []
    for plan in plans:
        images, table = splits[plan.split], f"{plan.file}.jsonl"
        chosen = orders[plan.split][plan.first : plan.first + plan.records]
        with explained("write", folder / table):
            (folder / table).write_text("".join(f"{images[place].to_json()}\n" for place in chosen))
        tasks.append(task(plan, table))
    return tasks


def copy_pixels(image: CocoImage, rows: Pixels, square: Pixels) -> None:
    """Copy an image's letter-boxed pixels from the cache.

    Args:
        image: which.
        rows: uint8, (n, side, side, 3): the file of pixels.
        square: uint8, (side, side, 3), is filled.

    Raises:
        SourceError: they are damaged.
    """
    if image.pixels.row < len(rows):
        square[...] = rows[image.pixels.row]
    if image.pixels.row >= len(rows) or google_crc32c.value(square) != image.pixels.crc:
        path = Path(image.pixels.path)
        raise SourceError(
            f"{path}: the pixels of {image.name} (image {image.id}) are damaged; delete {path.parent} and convert again"
        )


def annotations_of(images: Sequence[CocoImage], side: int, max_people: int, skeleton: Skeleton) -> Columns:
    """Compute the values of some records but for their pixels.

    Args:
        images: with their people; one at least.
        side: of the square.
        max_people: places; those left over are all zeros.
        skeleton: of the people.

    Returns:
        The features of :attr:`podline.data.sources.coco.CocoSource.features`, by name, without ``image``; (n, …shape).
    """
    letterboxes = [LetterBox(image.width, image.height, side) for image in images]
    joints = len(skeleton.annotated)
    counts = np.array([len(image.people) // people_type(joints).itemsize for image in images])
    # People of all images together: NumPy takes as long for one of them as for twenty.
    people = unpacked(b"".join([image.people for image in images]), joints)
    owners = np.repeat(np.arange(len(images)), counts)
    places = np.arange(len(people)) - np.repeat(np.cumsum(counts) - counts, counts)
    scales = np.array([letterbox.scale for letterbox in letterboxes])[owners]
    offsets = np.array([letterbox.offset for letterbox in letterboxes], np.float64)[owners]

    def in_places(values: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        column = np.zeros((len(images), max_people, *values.shape[1:]), dtype)
        column[owners, places] = values
        return column

    poses = from_annotated(people["keypoints"], skeleton)
    moved = snapped(joints_in_squares(poses[..., :2], scales[:, None], offsets[:, None]))
    poses[..., :2] = np.where(poses[..., 2:] > 0, moved, 0)
    ignored = [json.loads(image.ignored) for image in images]
    labels = [2 if count else int(bool(others)) for count, others in zip(counts, ignored, strict=True)]
    return {
        "keypoints": in_places(poses, np.float32),
        "boxes": in_places(snapped(boxes_in_squares(people["bbox"], scales, offsets)), np.float32),
        "areas": in_places(areas_in_squares(people["area"], scales), np.float32),
        "annotation_ids": in_places(people["id"], np.int64),
        "ignored": np.stack([ignored_mask(*pair, MASK_STRIDE) for pair in zip(ignored, letterboxes, strict=True)]),
        "image_id": np.array([[image.id] for image in images], np.int64),
        "size": np.array([[image.width, image.height] for image in images], np.int64),
        "people": counts,
        "label": np.array(labels),
    }
