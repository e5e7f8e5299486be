"""Chooses the people that get a place in an image's record; the others are ignored there."""

from __future__ import annotations

import functools
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.keypoints import from_annotated
from podline.documents.skeleton import Skeleton

_NOWHERE = (0, 0, 0)
BEYOND = "people beyond the places of a record"
"""The rule by which people are ignored since others have all places."""


class PersonEntry(NamedTuple):
    """A labelled person, in the image's own pixels.

    Attributes:
        id: the annotation's.
        keypoints: x, y and visibility of the annotated joints, one after another; zeros where a joint is not labelled.
        bbox: left, top, width, height.
        area: in pixels.
    """

    id: int
    keypoints: tuple[float, ...]
    bbox: tuple[float, float, float, float]
    area: float


def people_of(
    annotations: Iterable[Mapping[str, Any]], width: int, height: int, max_people: int, counted: Counter[str]
) -> tuple[list[PersonEntry], list[dict[str, Any]]]:
    """Return the people of an image: those with a place in its record, the largest first, and those that are ignored.

    Args:
        annotations: of an image without a problem.
        width: of the image.
        height: likewise.
        max_people: places in a record.
        counted: the rules that apply are counted here.

    Returns:
        The labelled people, and annotations as :func:`podline.data.sources.coco_masks.ignored_mask` wants them.
    """
    people: list[PersonEntry] = []
    ignored: list[dict[str, Any]] = []
    for annotation in annotations:
        person = None if annotation["iscrowd"] else _person(annotation, (width, height), counted)
        if person is not None:
            people.append(person)
            continue
        counted["crowds" if annotation["iscrowd"] else "people without a labelled joint"] += 1
        kept = {key: annotation.get(key) for key in ("id", "iscrowd", "bbox", "segmentation")}
        ignored.append(kept | {"num_keypoints": 0})
    people.sort(key=lambda person: (-person.area, person.id))
    for person in people[max_people:]:
        counted[BEYOND] += 1
        ignored.append({"id": person.id, "iscrowd": 0, "num_keypoints": 0, "bbox": person.bbox})
    return people[:max_people], ignored


def _person(annotation: Mapping[str, Any], size: tuple[int, int], counted: Counter[str]) -> PersonEntry | None:
    """Return a person with the joints that are in the image; None if there are none."""
    width, height = size
    values = annotation["keypoints"]
    # In plain Python: for so few numbers NumPy takes three times as long.
    labelled = len(values) // 3 - values[2::3].count(0)
    if labelled != annotation.get("num_keypoints"):
        counted["people whose num_keypoints is wrong"] += 1
    joints = [
        (x, y, seen) if seen > 0 and 0 <= x < width and 0 <= y < height else _NOWHERE
        for x, y, seen in zip(values[0::3], values[1::3], values[2::3], strict=True)
    ]
    inside = len(joints) - joints.count(_NOWHERE)
    if inside < labelled:
        counted["labelled joints outside the image"] += labelled - inside
    if not inside:
        return None
    left, top, width, height = annotation["bbox"]
    if not width * height:
        counted["boxes of no size"] += 1
        columns, rows, _seen = zip(*(joint for joint in joints if joint[2]), strict=True)
        left, top = min(columns), min(rows)
        width, height = max(columns) - left + 1, max(rows) - top + 1
    area = annotation["area"] or width * height
    return PersonEntry(id=annotation["id"], keypoints=tuple(chain(*joints)), bbox=(left, top, width, height), area=area)


def packed(people: Sequence[PersonEntry]) -> bytes:
    """People as :func:`people_type`, every number as it was read: COCO's are 456 bytes, a quarter of Python's."""
    return b"".join([_layout(len(one.keypoints)).pack(one.id, *one.keypoints, *one.bbox, one.area) for one in people])


@functools.cache
def _layout(values: int) -> struct.Struct:
    return struct.Struct(f"<q{values + 5}d")


def people_type(joints: int) -> np.dtype[np.void]:
    """Return a labelled person with so many annotated joints, as :func:`packed` writes one."""
    return np.dtype([("id", "<i8"), ("keypoints", "<f8", (joints, 3)), ("bbox", "<f8", (4,)), ("area", "<f8")])


def unpacked(people: bytes, joints: int) -> npt.NDArray[np.void]:
    """Return what :func:`packed` wrote: :func:`people_type`, (n,)."""
    return np.frombuffer(people, people_type(joints))


def limbs_of_no_length(people: npt.NDArray[np.void], skeleton: Skeleton) -> int:
    """How many limbs of some people, as :func:`unpacked`, have both ends in one place, in the numbers of a record."""
    poses = from_annotated(people["keypoints"], skeleton)
    starts, ends = poses[:, skeleton.starts], poses[:, skeleton.ends]
    labelled = (starts[..., 2] > 0) & (ends[..., 2] > 0)
    return int((labelled & (starts[..., :2] == ends[..., :2]).all(axis=-1)).sum())
