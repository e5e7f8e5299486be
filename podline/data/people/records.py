"""Make records of images with people: pixels from the cache, and people padded to ``max_people``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from podline.data.images.arrow_file import TEXT, decoded, mapped
from podline.data.keypoints import from_annotated
from podline.data.letterbox import LetterBox, areas_in_squares, boxes_in_squares, joints_in_squares, snapped
from podline.data.people.image import MASK_STRIDE, People, chosen
from podline.data.people.masks import ignored_mask
from podline.data.people.settings import PeopleSettings
from podline.data.planning import ShardPlan
from podline.data.records import IMAGE, RecordLayout
from podline.data.shards import Fill, RowsByPlace
from podline.data.tfrecord import Bytes
from podline.documents.feature import Feature
from podline.documents.skeleton import Skeleton

Columns = dict[str, np.ndarray]
TABLE = {"row": pa.int64(), "width": pa.int32(), "height": pa.int32(), "target": TEXT}
"""The columns of a shard's table: row of the image in the cache, image size, people as text."""


@dataclass(frozen=True)
class PeopleByPlace(RowsByPlace):
    """Makes records from decoded images and the people in each image."""

    settings: PeopleSettings
    skeleton: Skeleton

    def table(self, plan: ShardPlan) -> str:
        """Return the file name of a shard's table, which has the row, size and people of each record."""
        return f"{plan.file}.arrow"

    def filler(self, _plan: ShardPlan, /, layout: RecordLayout, table: Path) -> Fill:
        """Return a function that fills the shard's records; see :meth:`RowsByPlace.filler`."""
        columns = mapped(table)
        rows = columns["row"].to_numpy()

        def fill(frames: Bytes, start: int) -> None:
            some = slice(start, start + len(frames))
            fields = (columns[name][some].to_pylist() for name in ("target", "width", "height"))
            images = [People.of(decoded(text), *size) for text, *size in zip(*fields, strict=True)]
            people = annotations_of(images, self.settings, self.skeleton)
            layout.fill(frames, {IMAGE: self.images(rows[some]), **people})

        return fill


def features_of(settings: PeopleSettings, skeleton: Skeleton) -> tuple[Feature, ...]:
    """Return the features of a record besides the image; coordinates are in pixels of the square image."""
    places, cells = settings.max_people, settings.side // MASK_STRIDE
    return (
        Feature("keypoints", "float32", (places, len(skeleton.joints), 3)),
        Feature("boxes", "float32", (places, 4)),
        Feature("areas", "float32", (places,)),
        Feature("annotation_ids", "int64", (places,)),
        Feature("ignored", "uint8", (cells, cells)),
        Feature("image_id", "int64", (1,)),
        Feature("size", "int64", (2,)),
        Feature("people", "int64", ()),
    )


def annotations_of(images: Sequence[People], settings: PeopleSettings, skeleton: Skeleton) -> Columns:
    """Return the values of each feature of :func:`features_of`, (n, …shape), zero-padded to ``max_people``."""
    max_people = settings.max_people
    letterboxes = [LetterBox(image.width, image.height, settings.side) for image in images]
    found = [chosen(image, max_people, Counter()) for image in images]
    ignored = [others for _people, others in found]
    counts = np.array([len(people) for people, _others in found])
    # All images together: NumPy takes as long for one image as for twenty.
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
