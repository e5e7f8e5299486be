"""The joints and limbs of a person: the one table that every part of Podline reads.

Order: the joints on the body's axis first, then the person's own right, then the left. COCO's 17 joints
(https://cocodataset.org/#format-data, ``categories[].keypoints``) have no neck; here it lies midway between the
shoulders and joins the face to the body. Right and left are the person's, not the viewer's.

Poses are arrays (…, joints, 3) of x, y and a third number: in truth COCO's visibility (0 not labelled, 1 labelled but
hidden, 2 visible), in what a network found a score, 0 where it found nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_CENTER = ("nose", "neck")
_SIDED = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
JOINTS = (*_CENTER, *(f"right_{name}" for name in _SIDED), *(f"left_{name}" for name in _SIDED))
"""Names of the 18 joints, in the order of every array of poses."""

_SIDED_LIMBS = (
    ("neck", "shoulder"),
    ("shoulder", "elbow"),
    ("elbow", "wrist"),
    ("shoulder", "hip"),
    ("hip", "knee"),
    ("knee", "ankle"),
    ("nose", "eye"),
    ("eye", "ear"),
    # A second way from the face to the body: seen from behind or in profile, a person has no nose or one shoulder.
    ("ear", "shoulder"),
)


def _on_side(limb: tuple[str, str], side: str) -> tuple[str, str]:
    start, end = (name if name in _CENTER else f"{side}_{name}" for name in limb)
    return start, end


LIMBS = (
    ("neck", "nose"),
    # Joins the two halves of a body whose shoulders are not both seen, and which therefore has no neck.
    ("right_hip", "left_hip"),
    *(_on_side(limb, "right") for limb in _SIDED_LIMBS),
    *(_on_side(limb, "left") for limb in _SIDED_LIMBS),
)
"""The 20 limbs, each from its first joint to its second; part affinity fields point that way."""

COCO_JOINTS = (
    "nose",
    *(f"{side}_{name}" for name in ("eye", "ear") for side in ("left", "right")),
    *(f"{side}_{name}" for name in _SIDED[2:] for side in ("left", "right")),
)
"""COCO's 17 joints in COCO's order."""

INDEX = {name: index for index, name in enumerate(JOINTS)}
LIMB_STARTS = np.array([INDEX[start] for start, _ in LIMBS])
LIMB_ENDS = np.array([INDEX[end] for _, end in LIMBS])
_NECK, _RIGHT_SHOULDER, _LEFT_SHOULDER = INDEX["neck"], INDEX["right_shoulder"], INDEX["left_shoulder"]
_SWAP = {"right": "left", "left": "right"}


def _other_side(name: str) -> str:
    side, _, rest = name.partition("_")
    return f"{_SWAP[side]}_{rest}" if rest else name


MIRRORED = np.array([INDEX[_other_side(name)] for name in JOINTS])
"""Joint ``i`` of a mirrored pose is joint ``MIRRORED[i]`` of the pose."""

COCO_PLACES = np.array([INDEX[name] for name in COCO_JOINTS])
"""COCO's joint ``i`` is joint ``COCO_PLACES[i]`` here."""


def from_coco(poses: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Poses in COCO's joints, with the neck made from the shoulders.

    Args:
        poses: (…, 17, 3): x, y, visibility.

    Returns:
        float32, (…, 18, 3). The neck is labelled where both shoulders are, and as visible as the less visible of them;
        x and y of joints that are not labelled are 0.
    """
    given = np.asarray(poses, np.float32)
    made = np.zeros((*given.shape[:-2], len(JOINTS), 3), np.float32)
    made[..., COCO_PLACES, :] = given
    right, left = made[..., _RIGHT_SHOULDER, :], made[..., _LEFT_SHOULDER, :]
    made[..., _NECK, :2] = (right[..., :2] + left[..., :2]) / 2
    made[..., _NECK, 2] = np.minimum(right[..., 2], left[..., 2])
    made[made[..., 2] <= 0] = 0
    return made


def to_coco(poses: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The same poses in COCO's joints, (…, 18, 3) to float32 (…, 17, 3); the neck is left out."""
    return np.asarray(poses, np.float32)[..., COCO_PLACES, :]


def mirrored(poses: npt.NDArray[np.float32], side: int) -> npt.NDArray[np.float32]:
    """Poses in the mirror image: what was the right wrist is the left one.

    Twice mirrored is bit for bit the same as long as coordinates are multiples of 1/64 of a pixel, which those of
    records are (:func:`podline.data.coco_letterbox.snapped`).

    Args:
        poses: (…, 18, 3), in pixels of the image; an integer is the centre of a pixel.
        side: width of the image.

    Returns:
        float32, (…, 18, 3). Joints that are not labelled stay at 0, 0.
    """
    swapped = np.array(poses, np.float32)[..., MIRRORED, :]
    swapped[..., 0] = np.where(swapped[..., 2] > 0, side - 1 - swapped[..., 0], swapped[..., 0])
    return swapped
