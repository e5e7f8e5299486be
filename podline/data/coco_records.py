"""COCO's images as records: each decoded once, letter-boxed, with its people padded to a fixed number of places."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.coco_letterbox import LetterBox, areas_in_squares, boxes_in_squares, joints_in_squares, snapped
from podline.data.coco_masks import ignored_mask
from podline.data.coco_pixels import Pixels, decode, ready_for_many
from podline.data.keypoints import from_annotated
from podline.data.planning import ShardPlan, shard_order
from podline.data.records import IMAGE, RecordLayout
from podline.data.shards import Fill
from podline.data.sources.coco_image import MASK_STRIDE, CocoImage
from podline.data.sources.coco_people import people_type, unpacked
from podline.data.sources.image_files import expect_all
from podline.data.tfrecord import Bytes
from podline.documents.skeleton import Skeleton
from podline.errors import SourceError
from podline.store.contract import explained

Columns = dict[str, np.ndarray]

_AHEAD = 64  # images that the disk is asked for before they are read


@dataclass(frozen=True)
class PeopleByPlace:
    """Records whose images are read where they are, in a folder that workers see or in a bucket.

    Attributes:
        side: of the square that images are put into, in pixels.
        max_people: places in a record.
        threads: that decode images.
        skeleton: of the people.
    """

    side: int
    max_people: int
    threads: int
    skeleton: Skeleton

    def table(self, plan: ShardPlan) -> str:
        """Return the name of a shard's table: its :class:`CocoImage` entries as JSON, one a line."""
        return f"{plan.file}.jsonl"

    def filler(self, _plan: ShardPlan, layout: RecordLayout, table: Path) -> Fill:
        """Return what fills the shard's records; see :meth:`podline.data.shards.ShardFiller.filler`."""
        ready_for_many()
        with explained("read", table):
            entries = [CocoImage.from_json(line) for line in table.read_text().splitlines()]
        expect_all(image.place.file for image in entries[:_AHEAD])

        def fill(frames: Bytes, start: int) -> Sequence[bytes]:
            images, files = entries[start : start + len(frames)], []
            later = entries[start + _AHEAD : start + _AHEAD + len(frames)]
            expect_all(image.place.file for image in later)
            # Pixels, most of a record, go to their place in it; there is no other copy of them.
            for image, square in zip(images, layout.values(frames, IMAGE), strict=True):
                data, pixels = decoded(image)
                LetterBox(image.width, image.height, self.side).place(pixels, out=square)
                files.append(data)
            layout.fill(frames, annotations_of(images, self.side, self.max_people, self.skeleton))
            return files

        return fill


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


def decoded(image: CocoImage) -> tuple[bytes, Pixels]:
    """Read an image's file and decode it as it was annotated; see :func:`podline.data.coco_pixels.decode`.

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
