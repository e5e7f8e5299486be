"""COCO's images as records: their pixels from the cache, with people padded to a fixed number of places."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from podline.data.coco_letterbox import LetterBox, areas_in_squares, boxes_in_squares, joints_in_squares, snapped
from podline.data.coco_pixels import Pixels, ready_for_many
from podline.data.keypoints import from_annotated
from podline.data.planning import ShardPlan, shard_order
from podline.data.rawfiles import reading
from podline.data.records import IMAGE, RecordLayout
from podline.data.shards import Fill, RowsInTables, write_rows
from podline.data.sources.coco_image import MASK_STRIDE, CocoImage
from podline.data.sources.coco_masks import ignored_mask
from podline.data.sources.coco_people import people_of
from podline.data.tfrecord import Bytes
from podline.documents.skeleton import Skeleton
from podline.errors import SourceError
from podline.store.contract import explained

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class PeopleByPlace:
    """Records whose pixels are copied from the cache, by workers that see it.

    Attributes:
        side: of the square that images were put into, in pixels.
        max_people: places in a record.
        keep_files: whether records hold the images' files.
        skeleton: of the people.
    """

    side: int
    max_people: int
    keep_files: bool
    skeleton: Skeleton

    def table(self, plan: ShardPlan) -> str:
        """Return the name of a shard's table: its :class:`CocoImage` entries as JSON, one a line."""
        return f"{plan.file}.jsonl"

    def filler(self, _plan: ShardPlan, layout: RecordLayout, table: Path) -> Fill:
        """Return what fills the shard's records; see :meth:`podline.data.shards.ShardFiller.filler`."""
        ready_for_many()
        entries, rows = self._opened(table)

        def fill(frames: Bytes, start: int) -> Sequence[bytes]:
            images = entries[start : start + len(frames)]
            # Pixels, most of a record, go to their place in it; there is no other copy of them.
            self._copy(images, rows, layout.values(frames, IMAGE))
            layout.fill(frames, annotations_of(images, self.side, self.max_people, self.skeleton))
            return self._files(images)

        return fill

    def rows(self, table: Path) -> tuple[Columns, Sequence[bytes]]:
        """Return the values of a shard's records, and the images' files where records hold these.

        Raises:
            SourceError: they cannot be read.
            StoreError: the table cannot be read.
        """
        images, rows = self._opened(table)
        squares = np.empty((len(images), self.side, self.side, 3), np.uint8)
        self._copy(images, rows, squares)
        columns = annotations_of(images, self.side, self.max_people, self.skeleton)
        return {IMAGE: squares, **columns}, self._files(images)

    def _opened(self, table: Path) -> tuple[list[CocoImage], dict[str, Pixels]]:
        """Return a table's images, and the files of pixels that they are in."""
        with explained("read", table):
            images = [CocoImage.from_json(line) for line in table.read_text().splitlines()]
        return images, {path: self._mapped(path) for path in {image.pixels.path for image in images}}

    def _mapped(self, path: str) -> Pixels:
        shape = (self.side, self.side, 3)
        with reading(path):
            count = Path(path).stat().st_size // math.prod(shape)
            return np.memmap(path, np.uint8, "r", shape=(count, *shape)) if count else np.empty((0, *shape), np.uint8)

    def _copy(self, images: Sequence[CocoImage], rows: Mapping[str, Pixels], squares: Pixels) -> None:
        for image, square in zip(images, squares, strict=True):
            copy_pixels(image, rows[image.pixels.path], square)

    def _files(self, images: Sequence[CocoImage]) -> Sequence[bytes]:
        return [image.place.read_same() for image in images] if self.keep_files else ()


def tables_of_people(
    splits: Mapping[str, Sequence[CocoImage]], plans: Iterable[ShardPlan], seed: int, folder: Path
) -> Iterator[Path]:
    """Write each shard's table for :class:`PeopleByPlace`, one after another.

    Args:
        splits: what is converted.
        plans: its shards.
        seed: of the order in which records are put into shards.
        folder: an existing folder for the tables.

    Raises:
        StoreError: the folder cannot be written.
    """
    orders = {name: shard_order(seed, name, len(images)) for name, images in splits.items()}
    for plan in plans:
        images, table = splits[plan.split], folder / f"{plan.file}.jsonl"
        chosen = orders[plan.split][plan.first : plan.first + plan.records].tolist()
        with explained("write", table):
            table.write_text("".join(f"{images[place].to_json()}\n" for place in chosen))
        yield table


def rows_of_people(filler: PeopleByPlace, plans: Iterable[ShardPlan], tables: Iterable[Path]) -> Iterator[Path]:
    """Write each shard's table for :class:`podline.data.shards.RowsInTables`, in place of that of its images.

    Raises:
        SourceError: pixels or files cannot be read.
        StoreError: a table cannot be read or written.
    """
    for plan, table in zip(plans, tables, strict=True):
        columns, files = filler.rows(table)
        with explained("delete", table):
            table.unlink()
        yield write_rows(table.parent / RowsInTables().table(plan), columns, files)


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
    found = [people_of(image.annotations, image.width, image.height, max_people, Counter()) for image in images]
    ignored = [others for _people, others in found]
    counts = np.array([len(people) for people, _others in found])
    # People of all images together: NumPy takes as long for one of them as for twenty.
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
    labels = [2 if count else int(bool(others)) for count, others in zip(counts, ignored, strict=True)]
    return {
        "keypoints": in_places(poses, np.float32),
        "boxes": in_places(snapped(boxes_in_squares(boxes, scales, offsets)), np.float32),
        "areas": in_places(areas_in_squares(areas, scales), np.float32),
        "annotation_ids": in_places(ids, np.int64),
        "ignored": np.stack([ignored_mask(*pair, MASK_STRIDE) for pair in zip(ignored, letterboxes, strict=True)]),
        "image_id": np.array([[image.id] for image in images], np.int64),
        "size": np.array([[image.width, image.height] for image in images], np.int64),
        "people": counts,
        "label": np.array(labels),
    }
