"""Draws skeletons onto pictures; colours distinguish the left and right sides of a person."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from podline.base.arrays import Image
from podline.data.keypoints import from_annotated
from podline.documents.skeleton import Skeleton, side_of
from podline.kinds.pose.coco_results import Results

Colour = tuple[int, int, int]

LEFT: Colour = (54, 150, 255)
RIGHT: Colour = (255, 132, 38)
CENTER: Colour = (118, 224, 110)
"""RGB colours for the person's left side, right side and body axis."""

_OUTLINE: Colour = (20, 20, 20)
# OpenCV's coordinates are integers in units of 1/16 of a pixel.
_FRACTION_BITS = 4
# A limb's width as a share of the diagonal of the person's box, and its limits in pixels of the picture.
_WIDTH, _THINNEST, _THICKEST = 1 / 90, 1.5, 9.0


def colour_of(name: str) -> Colour:
    """Return a joint's colour by its name."""
    return {"left": LEFT, "right": RIGHT}.get(side_of(name)[0], CENTER)


def limb_colour(start: str, end: str) -> Colour:
    """Return a limb's colour: the colour of its side, or of the body axis if the limb has no side or connects both."""
    sides = {colour_of(name) for name in (start, end)} - {CENTER}
    return sides.pop() if len(sides) == 1 else CENTER


def poses_of(results: Results, skeleton: Skeleton) -> npt.NDArray[np.float32]:
    """Convert COCO results or annotations to poses, (n, joints, 3), in pixels of their image."""
    given = np.array([person["keypoints"] for person in results], np.float64)
    return from_annotated(given.reshape(-1, len(skeleton.annotated), 3), skeleton)


def with_skeletons(image: Image, poses: npt.NDArray[np.float32], skeleton: Skeleton, scale: float = 1.0) -> Image:
    """Draw people's skeletons onto a copy of a picture.

    Args:
        image: uint8 (height, width, 3).
        poses: (n, joints, 3): x and y in pixels of the image (an integer is a pixel's centre), and a number above 0 for
            joints to draw. The first person is on top.
        skeleton: the joints and limbs.
        scale: factor for the size of the picture, which is resized before drawing.
    """
    size = tuple(max(1, round(length * scale)) for length in image.shape[1::-1])
    drawn: Any = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    for pose in poses[::-1]:
        _draw(drawn, (pose[:, :2] + 0.5) * scale - 0.5, pose[:, 2] > 0, skeleton)
    return drawn


def _draw(picture: Image, places: npt.NDArray[np.float32], found: npt.NDArray[np.bool_], skeleton: Skeleton) -> None:
    """Draw one person into the picture: limbs first, joints on top, both with a dark outline."""
    if not found.any():
        return
    joints = skeleton.joints
    diagonal = float(np.linalg.norm(np.ptp(places[found], axis=0)))
    width = min(max(diagonal * _WIDTH, _THINNEST), _THICKEST)
    # OpenCV accepts points outside the picture, but not arbitrarily large numbers.
    fixed = np.rint(np.clip(places, -(2**14), 2**14) * 2**_FRACTION_BITS).astype(int).tolist()
    for outlined in (True, False):
        for first, last in zip(skeleton.starts, skeleton.ends, strict=True):
            if found[first] and found[last]:
                colour = _OUTLINE if outlined else limb_colour(joints[first], joints[last])
                thickness = max(1, round(width + 2 * outlined))
                cv2.line(picture, fixed[first], fixed[last], colour, thickness, cv2.LINE_AA, _FRACTION_BITS)
    for joint in np.flatnonzero(found):
        for radius, colour in ((1.15 * width + 1, _OUTLINE), (1.15 * width, colour_of(joints[joint]))):
            fine = round(radius * 2**_FRACTION_BITS)
            cv2.circle(picture, fixed[joint], fine, colour, cv2.FILLED, cv2.LINE_AA, _FRACTION_BITS)
