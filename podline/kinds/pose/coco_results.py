"""Writes and checks COCO keypoint results, and reads annotations (https://cocodataset.org/#format-results)."""

# pyright: standard
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from podline.base.errors import SourceError
from podline.data import bounds
from podline.data.keypoints import to_annotated
from podline.data.letterbox import LetterBox
from podline.data.shown import shortened
from podline.documents.skeleton import COCO, Skeleton, sigmas_by_name
from podline.kinds.pose.decoding import DecodedPeople

Person = dict[str, Any]
"""A person in COCO's format: an annotation, or a result."""
Results = list[Person]
Truth = dict[str, Any]

PERSON = 1
"""COCO's ``category_id`` of people."""

# A result's coordinates are rounded to a thousandth of a pixel of the image.
_DECIMALS = 3
_LARGEST = sys.float_info.max
_LARGEST_ID = 1 << 63


def people_to_results(people: DecodedPeople, image_id: int, letterbox: LetterBox, skeleton: Skeleton) -> Results:
    """Return the people of one image as COCO results, in the image's own pixels, by falling score.

    A missing joint is 0, 0, 0. The third number of a joint is its score, which COCO's measure ignores.
    """
    poses = to_annotated(people.poses, skeleton).astype(np.float64)
    found = poses[..., 2:] > 0
    poses[..., :2] = np.where(found, letterbox.joints_to_image(poses[..., :2]), 0)
    return [
        {
            "image_id": image_id,
            "category_id": PERSON,
            "keypoints": pose.ravel().round(_DECIMALS).tolist(),
            "score": float(score),
        }
        for pose, score in zip(poses, people.scores, strict=True)
    ]


def read_truth(path: Path) -> Truth:
    """Read a COCO annotation file, ``person_keypoints_*.json``.

    Raises:
        SourceError: the file cannot be read, or cannot be used for an evaluation.
    """
    truth = _read_json(path)
    check_truth(truth, str(path))
    return truth


def check_truth(truth: object, name: str) -> None:
    """Check that annotations contain everything that the measure needs.

    Raises:
        SourceError: the message names the annotation and its problem.
    """
    if not isinstance(truth, dict) or not all(
        isinstance(truth.get(key), list) for key in ("images", "annotations", "categories")
    ):
        raise SourceError(f"{name}: not COCO annotations: an object with images, annotations and categories is needed")
    joints = len(judged_joints(truth)[0])
    integers = ("id", "image_id", "category_id", "iscrowd", "num_keypoints")
    for place, annotation in enumerate(truth["annotations"]):
        _check_entry(annotation, f"{name}: annotation {place}", integers)
        _check_keypoints(annotation, joints, f"{name}: annotation {annotation['id']}")
        _check_numbers(annotation.get("bbox"), 4, f"{name}: annotation {annotation['id']}: bbox")
        _check_numbers([annotation.get("area")], 1, f"{name}: annotation {annotation['id']}: area")


def check_results(results: object, name: str, joints: int) -> None:
    """Check that results can be evaluated.

    Raises:
        SourceError: the message names the result and its problem.
    """
    if not isinstance(results, list):
        raise SourceError(f"{name}: not COCO results: a list is needed, found {type(results).__name__}")
    for place, result in enumerate(results):
        _check_entry(result, f"{name}: result {place}", ("image_id", "category_id"))
        _check_keypoints(result, joints, f"{name}: result {place}")
        _check_numbers([result.get("score")], 1, f"{name}: result {place}: score")
    if results and results[0].get("bbox"):
        # If the first result has a box, pycocotools computes areas from boxes and needs one in every result.
        for place, result in enumerate(results):
            _check_numbers(result.get("bbox"), 4, f"{name}: result {place}: bbox (the first result has one)")


def judged_joints(truth: Truth) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the joints of the category and their OKS constants.

    A category without joint names has COCO's joints. Without ``sigmas``, which COCO's format does not contain, the
    constants follow from the names (:func:`podline.documents.skeleton.sigmas_by_name`).
    """
    named = [found for found in truth["categories"] if isinstance(found, dict) and found.get("keypoints")]
    joints = tuple(map(str, named[0]["keypoints"])) if named else COCO.annotated
    return joints, tuple(named[0].get("sigmas") or sigmas_by_name(joints)) if named else COCO.sigmas


def _read_json(path: Path) -> Any:
    try:
        data = path.read_bytes()
        most, found = bounds.containers(len(data)), data.count(b"[") + data.count(b"{")
        if found > most:
            raise SourceError(f"{path}: {found:,} lists and objects in {len(data):,} bytes vs {most:,} at most")
        return json.loads(data)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: not JSON: {error}") from error


def _check_entry(entry: object, name: str, keys: tuple[str, ...]) -> None:
    if not isinstance(entry, dict):
        raise SourceError(f"{name}: an object is needed, found {type(entry).__name__}")
    for key in keys:
        if not isinstance(entry.get(key), int) or not -_LARGEST_ID <= entry[key] < _LARGEST_ID:
            raise SourceError(f"{name}: {key} is {shortened(entry.get(key))}, an integer is needed")


def _check_keypoints(entry: Person, joints: int, name: str) -> None:
    _check_numbers(entry.get("keypoints"), 3 * joints, f"{name}: keypoints")


def _check_numbers(values: object, count: int, name: str) -> None:
    if not isinstance(values, list) or len(values) != count:
        found = f"{len(values)} values" if isinstance(values, list) else type(values).__name__
        raise SourceError(f"{name}: {found}, {count} numbers are needed")
    for value in values:
        if type(value) not in (int, float) or not -_LARGEST <= value <= _LARGEST:
            raise SourceError(f"{name}: {shortened(value)} is not a finite number")
