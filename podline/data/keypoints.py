"""Converts poses between annotations and records, and mirrors them; see :mod:`podline.documents.skeleton`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from podline.documents.skeleton import Skeleton


def from_annotated(poses: npt.ArrayLike, skeleton: Skeleton) -> npt.NDArray[np.float32]:
    """Return poses with all joints of a skeleton; joints that are not annotated are midpoints of annotated joints.

    Args:
        poses: (…, annotated joints, 3): x, y, visibility.
        skeleton: the skeleton that defines the joints.

    Returns:
        float32, (…, joints, 3). A midpoint is labelled if both its joints are, and has the lower of their visibilities;
        x and y of unlabelled joints are 0.
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
    """Return only the annotated joints of poses: (…, joints, 3) to float32 (…, annotated joints, 3)."""
    return np.asarray(poses, np.float32)[..., skeleton.places, :]


def mirrored(poses: npt.NDArray[np.float32], side: int, skeleton: Skeleton) -> npt.NDArray[np.float32]:
    """Mirror poses and exchange left and right joints.

    Mirroring twice gives the same bits if coordinates are multiples of 1/64 of a pixel, as in records
    (:func:`podline.data.letterbox.snapped`).

    Args:
        poses: (…, joints, 3), in pixels of the image; an integer is the centre of a pixel.
        side: width of the image.
        skeleton: the skeleton that defines the joints.

    Returns:
        float32, (…, joints, 3). Unlabelled joints stay at 0, 0.
    """
    swapped = np.array(poses, np.float32)[..., skeleton.mirror, :]
    swapped[..., 0] = np.where(swapped[..., 2] > 0, side - 1 - swapped[..., 0], swapped[..., 0])
    return swapped
