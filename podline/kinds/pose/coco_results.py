"""Makes COCO keypoint results (https://cocodataset.org/#format-results), and reads parts of COCO documents."""

# pyright: standard
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from podline.data.keypoints import to_annotated
from podline.data.letterbox import LetterBox
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


def people_to_results(people: DecodedPeople, image_id: int, letterbox: LetterBox, skeleton: Skeleton) -> Results:
    """Return the people of one image as COCO results, in pixels of the original image, highest score first.

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


def of_images(truth: Truth, image_ids: Iterable[int]) -> Truth:
    """Return the truth about the images with these ids only."""
    wanted = frozenset(image_ids)
    return truth | {
        "images": [image for image in truth["images"] if image["id"] in wanted],
        "annotations": [person for person in truth["annotations"] if person["image_id"] in wanted],
    }


def judged_joints(truth: Truth) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the joint names of the category, and the joints' OKS constants.

    A category without joint names has COCO's joints. The constants are the category's ``sigmas``, an addition to COCO's
    format; without them, :func:`podline.documents.skeleton.sigmas_by_name` derives them from the names.
    """
    named = [found for found in truth["categories"] if isinstance(found, dict) and found.get("keypoints")]
    joints = tuple(map(str, named[0]["keypoints"])) if named else COCO.annotated
    return joints, tuple(named[0].get("sigmas") or sigmas_by_name(joints)) if named else COCO.sigmas
