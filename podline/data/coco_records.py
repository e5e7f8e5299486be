"""COCO's images as records: each decoded once, letter-boxed, with its people padded to a fixed number of places."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from podline.data.coco_letterbox import LetterBox, snapped
from podline.data.coco_masks import ignored_mask
from podline.data.coco_pixels import Pixels, decode, ready_for_many
from podline.data.kept_jpegs import KeptLayout
from podline.data.keypoints import JOINTS
from podline.data.planning import ShardPlan, shard_order
from podline.data.records import IMAGE, RecordLayout, put
from podline.data.shards import Fill, Pieces
from podline.data.sources.coco import MASK_STRIDE, CocoImage, CocoSource
from podline.data.sources.coco_annotations import poses_of
from podline.data.tfrecord import Bytes, seal
from podline.errors import SourceError
from podline.storage import explained

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class CocoShardTask:
    """One shard to be written; what its images are is in a file of the plan's workspace.

    Attributes:
        plan: which.
        table: the file, made by :func:`coco_tasks`: the shard's :class:`CocoImage` entries as JSON, one a line.
        side: of the square that images are put into, in pixels.
        max_people: places in a record.
        threads: that decode images.
        keep_jpeg: whether records hold the images' files instead of pixels.
    """

    plan: ShardPlan
    table: str
    side: int
    max_people: int
    threads: int
    keep_jpeg: bool

    def filler(self, layout: RecordLayout) -> Fill:
        """What fills the shard's records, for :func:`podline.data.shards.write_shard`; any number of threads may.

        Raises:
            StoreError: the table cannot be read.
        """
        ready_for_many()
        with explained("read", self.table):
            lines = Path(self.table).read_text().splitlines()

        kept = KeptLayout(layout)

        def fill(frames: Bytes, start: int) -> Pieces:
            images, files = [CocoImage.from_json(line) for line in lines[start : start + len(frames)]], []
            # Pixels, most of a record, go to their place in it; there is no other copy of them.
            for image, square in zip(images, layout.values(frames, IMAGE), strict=True):
                data, pixels = decoded(image)
                LetterBox(image.width, image.height, self.side).place(pixels, out=square)
                files.append(data)
            records = [annotations_of(image, self.side, self.max_people) for image in images]
            for field in layout.fields:
                if field.name != IMAGE:
                    put(frames, field, np.stack([record[field.name] for record in records]))
            if self.keep_jpeg:
                return [piece for frame, data in zip(frames, files, strict=True) for piece in kept.pieces(frame, data)]
            seal(frames)
            return [frames.data]

        return fill


def coco_tasks(
    source: CocoSource, plans: Iterable[ShardPlan], seed: int, folder: Path, *, threads: int, keep_jpeg: bool
) -> list[CocoShardTask]:
    """Each plan with a table of its images; see :func:`podline.data.shards.shard_tasks`.

    Args:
        source: what is converted.
        plans: its shards.
        seed: of the order in which records are put into shards.
        folder: an existing folder that every worker can read.
        threads: that decode images for a shard.
        keep_jpeg: whether records hold the images' files instead of pixels.

    Raises:
        StoreError: the folder cannot be written.
    """
    orders = {name: shard_order(seed, name, size).tolist() for name, size in source.sizes.items()}
    tasks = []
    for plan in plans:
        images, table = source.splits[plan.split], folder / f"{plan.file}.jsonl"
        chosen = orders[plan.split][plan.first : plan.first + plan.records]
        with explained("write", table):
            table.write_text("".join(f"{images[place].to_json()}\n" for place in chosen))
        tasks.append(CocoShardTask(plan, str(table), source.side, source.max_people, threads, keep_jpeg))
    return tasks


def decoded(image: CocoImage) -> tuple[bytes, Pixels]:
    """An image's file, and the image as it was annotated; see :func:`podline.data.coco_pixels.decode`.

    Raises:
        SourceError: the file changed, or cannot be decoded though its markers are in order.
    """
    data = image.place.read()
    pixels = decode(data, image.width, image.height)
    if pixels is None or pixels.shape != (image.height, image.width, 3):
        found = "nothing" if pixels is None else f"{pixels.shape[1]}×{pixels.shape[0]} pixels"
        raise SourceError(
            f"{image.name} (image {image.id}) in {image.place.path} decodes to {found} vs {image.width}×{image.height} "
            "pixels, though its markers are in order; restore the file, or remove it: a missing one is left out"
        )
    return data, pixels


def annotations_of(image: CocoImage, side: int, max_people: int) -> Columns:
    """The values of one record but for its pixels.

    Args:
        image: with its people.
        side: of the square.
        max_people: places; those left over are all zeros.

    Returns:
        The features of :attr:`podline.data.sources.coco.CocoSource.features`, by name, without ``image``.
    """
    letterbox = LetterBox(image.width, image.height, side)
    people, ignored = image.people(max_people)
    count = len(people)
    keypoints = np.zeros((max_people, len(JOINTS), 3), np.float32)
    boxes, areas = np.zeros((max_people, 4), np.float32), np.zeros(max_people, np.float32)
    ids = np.zeros(max_people, np.int64)
    poses = poses_of(people)
    moved = snapped(letterbox.joints_to_network(poses[..., :2]))
    keypoints[:count, :, :2] = np.where(poses[..., 2:] > 0, moved, 0)
    keypoints[:count, :, 2] = poses[..., 2]
    if people:
        boxes[:count] = snapped(letterbox.boxes_to_network([person.bbox for person in people]))
        areas[:count] = letterbox.areas_to_network([person.area for person in people])
        ids[:count] = [person.id for person in people]
    return {
        "keypoints": keypoints,
        "boxes": boxes,
        "areas": areas,
        "annotation_ids": ids,
        "ignored": ignored_mask(ignored, letterbox, MASK_STRIDE),
        "image_id": np.array([image.id], np.int64),
        "size": np.array([image.width, image.height], np.int64),
        "people": np.array(count),
        "label": np.array(2 if people else int(bool(ignored))),
    }
