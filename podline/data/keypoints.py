"""Poses as annotations hold them, as records hold them, and in the mirror; see :mod:`podline.documents.skeleton`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from podline.documents.skeleton import Skeleton


def from_annotated(poses: npt.ArrayLike, skeleton: Skeleton) -> npt.NDArray[np.float32]:
    """Return poses with all joints of a skeleton; joints that annotations lack are computed from two others.

    Args:
        poses: (…, annotated joints, 3): x, y, visibility.
        skeleton: whose joints they are.

    Returns:
        float32, (…, joints, 3). A made joint is labelled where both others are, and as visible as the less visible of
        them; x and y of joints that are not labelled are 0.
    """
    given, index = np.asarray(poses, np.float32), skeleton.index
    made = np.zeros((*given.shape[:-2], len(skeleton.joints), 3), np.float32)
    made[..., skeleton.places, :] = given
    for joint, ends in skeleton.midpoints.items():
        first, second = (made[..., index[end], :] for end in ends)
        made[..., index[joint], :2] = (first[..., :2] + second[..., :2]) / 2
        made[..., index[joint], 2] = np.minimum(first[..., 2], second[..., 2])
    made[made[..., 2] <= 0] = 0
    return made


def to_annotated(poses: npt.ArrayLike, skeleton: Skeleton) -> npt.NDArray[np.float32]:
    """Return poses in the joints that annotations hold: (…, joints, 3) to float32 (…, annotated joints, 3)."""
    return np.asarray(poses, np.float32)[..., skeleton.places, :]


def mirrored(poses: npt.NDArray[np.float32], side: int, skeleton: Skeleton) -> npt.NDArray[np.float32]:
    """Mirror poses: what was the right wrist is the left one.

    Twice mirrored is bit for bit the same as long as coordinates are multiples of 1/64 of a pixel, which those of
    records are (:func:`podline.data.coco_letterbox.snapped`).

    Args:
        poses: (…, joints, 3), in pixels of the image; an integer is the centre of a pixel.
        side: width of the image.
        skeleton: whose joints they are.

    Returns:
        float32, (…, joints, 3). Joints that are not labelled stay at 0, 0.
    """
    swapped = np.array(poses, np.float32)[..., skeleton.mirror, :]
    swapped[..., 0] = np.where(swapped[..., 2] > 0, side - 1 - swapped[..., 0], swapped[..., 0])
    return swapped
