"""Makes records of COCO's images: pixels from the cache, and people padded to a fixed number of places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.coco_letterbox import LetterBox, areas_in_squares, boxes_in_squares, joints_in_squares, snapped
from podline.data.decoded_rows import DecodedRows
from podline.data.keypoints import from_annotated
from podline.data.pictures import Pixels
from podline.data.planning import ShardPlan, shard_order
from podline.data.records import IMAGE, RecordLayout
from podline.data.shards import Fill
from podline.data.sources.coco_image import MASK_STRIDE, CocoImage, people_of
from podline.data.sources.coco_masks import ignored_mask
from podline.data.sources.coco_settings import CocoSettings
from podline.data.tfrecord import Bytes
from podline.documents.skeleton import Skeleton
from podline.store.contract import explained

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class PeopleByPlace:
    """Makes records from pixels in the cache, for workers that can read it.

    Attributes:
        decoded: the decoded images of each annotation file.
        settings: the form of the records.
        skeleton: the skeleton of the people.
    """

    decoded: Sequence[DecodedRows]
    settings: CocoSettings
    skeleton: Skeleton

    def table(self, plan: ShardPlan) -> str:
        """Return the name of a shard's table, which lists its :class:`CocoImage` entries as JSON, one per line."""
        return f"{plan.file}.jsonl"

    def filler(self, _plan: ShardPlan, layout: RecordLayout, table: Path) -> Fill:
        """Return the function that fills the shard's records; see :meth:`podline.data.shards.ShardFiller.filler`."""
        with explained("read", table):
            entries = [CocoImage.from_json(line) for line in table.read_text().splitlines()]

        def fill(frames: Bytes, start: int) -> None:
            images = entries[start : start + len(frames)]
            columns = annotations_of(images, self.settings.side, self.settings.max_people, self.skeleton)
            layout.fill(frames, {IMAGE: squares_of(images, self.decoded, self.settings.side), **columns})

        return fill


def squares_of(images: Sequence[CocoImage], decoded: Sequence[DecodedRows], side: int) -> Pixels:
    """Return images' letter-boxed pixels, uint8 (n, side, side, 3), from the decoded images of each annotation file.

    Raises:
        SourceError: the pixels cannot be read, or are damaged.
    """
    squares = np.empty((len(images), side * side * 3), np.uint8)
    parts, rows = np.array([image.pixels for image in images], np.int64).T
    for part in np.unique(parts).tolist():
        chosen = np.flatnonzero(parts == part)
        squares[chosen] = decoded[part].read(rows[chosen], squares.shape[1])
    return squares.reshape(-1, side, side, 3)


def tables_of_people(
    splits: Mapping[str, Sequence[CocoImage]], plans: Iterable[ShardPlan], seed: int, folder: Path
) -> Iterator[Path]:
    """Write each shard's table for :class:`PeopleByPlace` into an existing folder, one after another.

    Raises:
        StoreError: the folder cannot be written.
    """
    for plan in plans:
        images, table = splits[plan.split], folder / f"{plan.file}.jsonl"
        chosen = shard_order(seed, plan, len(images)).tolist()
        with explained("write", table):
            table.write_text("".join(f"{images[place].to_json()}\n" for place in chosen))
        yield table


def annotations_of(images: Sequence[CocoImage], side: int, max_people: int, skeleton: Skeleton) -> Columns:
    """Compute the values of records without pixels; unused places are zeros.

    Returns:
        The features of :attr:`podline.data.sources.coco.CocoSource.features` by name, without ``image``; (n, …shape).
    """
    letterboxes = [LetterBox(image.width, image.height, side) for image in images]
    found = [people_of(image.annotations, image.width, image.height, max_people, Counter()) for image in images]
    ignored = [others for _people, others in found]
    counts = np.array([len(people) for people, _others in found])
    # Computes the people of all images together: NumPy takes as long for one image as for twenty.
    people = [person for people, _others in found for person in people]
    ids, areas = (np.array([getattr(person, name) for person in people]) for name in ("id", "area"))
    boxes = np.array([person.bbox for person in people], np.float64).reshape(-1, 4)
    joints = np.array([person.keypoints for person in people], np.float64).reshape(-1, len(skeleton.annotated), 3)
    owners = np.repeat(np.arange(len(images)), counts)
    places = np.arange(len(people)) - np.repeat(np.cumsum(counts) - counts, counts)
    scales = np.array([letterbox.scale for letterbox in letterboxes])[owners]
    offsets = np.array([letterbox.offset for letterbox in letterboxes], np.float64)[owners]

    def in_places(values: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        column = np.zeros((len(images), max_people, *values.shape[1:]), dtype)
        column[owners, places] = values
        return column

    poses = from_annotated(joints, skeleton)
    moved = snapped(joints_in_squares(poses[..., :2], scales[:, None], offsets[:, None]))
    poses[..., :2] = np.where(poses[..., 2:] > 0, moved, 0)
    return {
        "keypoints": in_places(poses, np.float32),
        "boxes": in_places(snapped(boxes_in_squares(boxes, scales, offsets)), np.float32),
        "areas": in_places(areas_in_squares(areas, scales), np.float32),
        "annotation_ids": in_places(ids, np.int64),
        "ignored": np.stack([ignored_mask(*pair, MASK_STRIDE) for pair in zip(ignored, letterboxes, strict=True)]),
        "image_id": np.array([[image.id] for image in images], np.int64),
        "size": np.array([[image.width, image.height] for image in images], np.int64),
        "people": counts,
    }
