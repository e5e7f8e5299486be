"""Find annotations whose numbers contradict COCO's format, such as fractions instead of pixels, and name a remedy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.plurals import plural
from podline.data.people.image import People

Numbers = npt.NDArray[np.float64]

_LEAST = 3  # fewest instances for a warning
_MOST = 0.5  # share that counts as most
_BOXES = 0.8  # least share of boxes that contain most of their joints, below which a warning is given
_SOME = 0.1  # share of instances with joints outside the image that careless labelling can explain
_LARGE = 150  # image side in pixels, above which all joints within 100 pixels are unlikely to be pixels
_WRITE = "write left, top, width and height in pixels"


class _Instance(NamedTuple):
    """An instance: its labelled joints (n, 2), its box, its image's size, and whether an EXIF rotation was ignored."""

    joints: Numbers
    box: Numbers
    size: Numbers
    unturned: bool


def doubts(images: Iterable[tuple[People, bool]]) -> list[str]:
    """Return warnings: one about ignored EXIF rotations, and one about the first of units, places and boxes in doubt.

    Empty for fewer than :data:`_LEAST` instances. ``images``: the people in each image, and whether the image has an
    EXIF rotation that was ignored.
    """
    instances = [found for people, unturned in images for found in _instances(people, unturned)]
    if len(instances) < _LEAST:
        return []
    stored = [each for each in instances if not each.unturned]
    found = (check(some) for check, some in ((_units, instances), (_outside_of, stored), (_boxes, stored)))
    return [*filter(None, [_turned(instances), next(filter(None, found), "")])]


def _instances(people: People, unturned: bool) -> Iterable[_Instance]:
    size = np.array([people.width, people.height], float)
    for annotation in map(json.loads, people.annotations):
        joints = np.reshape(annotation["keypoints"], (-1, 3)).astype(float)
        joints = joints[joints[:, 2] > 0, :2]
        if len(joints) and not annotation["iscrowd"]:
            yield _Instance(joints, np.array(annotation["bbox"], float), size, unturned)


def _units(instances: Sequence[_Instance]) -> str:
    """Return a warning if all joints lie so near to the origin that they are fractions or percent, not pixels."""
    joints = np.concatenate([each.joints for each in instances])
    smallest = min(each.size.min() for each in instances)
    for most, unit, factor in ((1, "from 0 to 1", "width and height"), (100, "in percent", "a hundredth of both")):
        if joints.min() >= 0 and joints.max() <= most and smallest > (_LARGE if most > 1 else most):
            return (
                f"all joints lie within {most} {'pixel' if most == 1 else 'pixels'} of the image's corner, as if given "
                f"{unit}; write them in pixels: multiply x and y by {factor}"
            )
    return ""


def _outside(instances: Sequence[_Instance]) -> tuple[int, int]:
    """Return the number of instances with joints outside the image, and how many of them fit with x and y swapped."""
    outside = [one for one in instances if not _holds(one.size, one.joints).all()]
    return len(outside), sum(bool(_holds(one.size[::-1], one.joints).all()) for one in outside)


def _holds(size: Numbers, joints: Numbers) -> npt.NDArray[np.bool_]:
    return np.all((joints >= 0) & (joints <= size), axis=1)


def _turned(instances: Sequence[_Instance]) -> str:
    unturned = [each for each in instances if each.unturned]
    outside, fitting = _outside(unturned)
    if not unturned:
        return ""
    remedy, count = "--set conversion.turn=true rotates them", plural(len(unturned), "instance")
    if fitting > _MOST * outside:
        return (
            f"{fitting} of {count} in images with an EXIF rotation have joints outside the stored image but inside "
            f"the rotated one, so the annotations belong to rotated images; {remedy}"
        )
    return (
        f"images with an EXIF rotation ({count} of {len(instances)}) are read as stored, as in COCO; if the "
        f"annotations belong to rotated images, {remedy}"
    )


def _outside_of(instances: Sequence[_Instance]) -> str:
    outside, fitting = _outside(instances)
    if outside < max(_LEAST, _SOME * len(instances)):
        return ""
    if fitting > _MOST * outside:
        return (
            f"{outside} of {len(instances)} instances have joints outside the image, and {fitting} of them would be "
            "inside if x and y were swapped; write x first"
        )
    return (
        f"{outside} of {len(instances)} instances have joints outside the image; correct these annotations, or scale "
        "the joints like the images"
    )


def _boxes(instances: Sequence[_Instance]) -> str:
    if not instances:
        return ""
    joints = [each.joints for each in instances]
    boxes, sizes = (np.array(parts) for parts in zip(*((each.box, each.size) for each in instances), strict=True))

    def good(left: Numbers, right: Numbers) -> int:
        """Return the number of boxes that contain most of their joints and lie in the image, give or take a tenth."""
        slack = _SOME * sizes
        inside = np.all((left >= -slack) & (right <= sizes + slack) & (left <= right), axis=1)
        held = [
            np.mean(_holds(high - low + 2, one - low + 1)) > _MOST
            for one, low, high in zip(joints, left, right, strict=True)
        ]
        return int(np.sum(inside & np.array(held)))

    first, second = boxes[:, :2], boxes[:, 2:]
    right = good(first, first + second)
    if right >= _BOXES * len(instances):
        return ""
    meanings = {
        "left, top, right and bottom": good(first, second),
        "the centre, width and height": good(first - second / 2, first + second / 2),
        "top, left, height and width": good(first[:, ::-1], (first + second)[:, ::-1]),
        "shares of the image": good(first * sizes, (first + second) * sizes),
    }
    meaning, count = max(meanings.items(), key=lambda found: found[1])
    like = f", but {count} would if they were {meaning}" if count > max(right, _MOST * len(instances)) else ""
    return (
        f"{len(instances) - right} of {len(instances)} boxes do not contain their joints or leave the image{like}; "
        f"{_WRITE}"
    )
