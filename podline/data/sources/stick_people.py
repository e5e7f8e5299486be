"""Stick people of many poses and sizes on textured grounds, drawn with OpenCV; what is drawn depends on integers alone.

A person's right limbs are of warm colours and the left ones of cold, so that sides can be told apart from the front
and from behind.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from podline.data.order import random_uniform
from podline.documents.skeleton import COCO

Pixels = npt.NDArray[np.uint8]
_RIGHT_ARM, _LEFT_ARM, _RIGHT_LEG, _LEFT_LEG = (40, 40, 230), (230, 60, 40), (40, 150, 250), (230, 210, 40)  # BGR
_TRUNK, _SKIN, _DARK = (60, 190, 60), (170, 200, 235), (20, 20, 20)
_INDEX, _PLACES = COCO.index, np.array(COCO.places)
_LIMBS = (
    ("left_shoulder", "left_elbow", _LEFT_ARM),
    ("left_elbow", "left_wrist", _LEFT_ARM),
    ("left_hip", "left_knee", _LEFT_LEG),
    ("left_knee", "left_ankle", _LEFT_LEG),
    ("right_hip", "right_knee", _RIGHT_LEG),
    ("right_knee", "right_ankle", _RIGHT_LEG),
    ("right_shoulder", "right_elbow", _RIGHT_ARM),
    ("right_elbow", "right_wrist", _RIGHT_ARM),
)
_TRUNK_CORNERS = ("right_shoulder", "left_shoulder", "left_hip", "right_hip")
_FACE = ("nose", "right_eye", "left_eye")


class Draws:
    """Random numbers in sequence, each a function of seed, image and its place in the sequence."""

    def __init__(self, seed: int, purpose: str, image: int) -> None:
        self._seed, self._purpose, self._image, self._drawn = seed, purpose, image, 0

    def uniform(self, low: float, high: float, count: int = 1) -> npt.NDArray[np.float64]:
        """Numbers in [low, high)."""
        ids = np.arange(self._drawn, self._drawn + count)
        self._drawn += count
        return low + (high - low) * random_uniform(self._seed, self._purpose, self._image, ids)

    def one(self, low: float, high: float) -> float:
        """Return a number in [low, high)."""
        return float(self.uniform(low, high)[0])


class Person(NamedTuple):
    """A drawn person.

    Attributes:
        joints: float64 (17, 3), COCO's joints: x, y in whole pixels, visibility.
        outline: the pixels that were painted, bool (height, width).
    """

    joints: npt.NDArray[np.float64]
    outline: npt.NDArray[np.bool_]


def ground(draws: Draws, width: int, height: int) -> Pixels:
    """Draw a textured ground, uint8 (height, width, 3): coarse blotches, finer ones and grain, none of them bright."""
    picture = np.zeros((height, width, 3), np.float32)
    for cells, strength in ((6, 90.0), (24, 40.0)):
        blotches = draws.uniform(0, strength, cells * cells * 3).reshape(cells, cells, 3).astype(np.float32)
        picture += cv2.resize(blotches, (width, height), interpolation=cv2.INTER_CUBIC)
    grain = draws.uniform(0, 20, height * width // 4).reshape(height // 2, width // 2).astype(np.float32)
    picture += cv2.resize(grain, (width, height), interpolation=cv2.INTER_NEAREST)[..., None]
    return picture.clip(0, 255).astype(np.uint8)


def draw_person(picture: Pixels, draws: Draws, centre: tuple[float, float], tall: float) -> Person:
    """Draws somebody into a picture.

    Args:
        picture: uint8 (height, width, 3).
        draws: decide the pose.
        centre: x, y of the middle of the body.
        tall: the height of a person who stands upright, in pixels.

    Returns:
        The joints; those outside the picture, and the face from behind, are not labelled.
    """
    behind = draws.one(0, 1) < 0.2
    places = _pose(draws, behind) * tall + centre
    painted = picture.copy()
    _paint(painted, places, tall, behind)
    outline = (painted != picture).any(axis=-1)
    picture[:] = painted
    joints = np.concatenate([np.rint(places[_PLACES]), np.full((len(_PLACES), 1), 2.0)], axis=1)
    inside = ((joints[:, :2] >= 0) & (joints[:, :2] < picture.shape[1::-1])).all(axis=1)
    faces = np.isin(_PLACES, [_INDEX[name] for name in _FACE])
    joints[~inside | (faces & behind)] = 0
    return Person(joints, outline)


def _pose(draws: Draws, behind: bool) -> npt.NDArray[np.float64]:
    """All joints of a person one high around the middle of the body, (18, 2)."""
    places = np.zeros((len(COCO.joints), 2))
    lean = draws.one(-0.35, 0.35)
    up, across = np.array([math.sin(lean), -math.cos(lean)]), np.array([math.cos(lean), math.sin(lean)])
    narrow = draws.one(0.6, 1.0)
    for side, sign in (("right", -1), ("left", 1)):
        outward = across * sign * (-1 if behind else 1)
        shoulder, hip = up * 0.18 + outward * 0.11 * narrow, -up * 0.12 + outward * 0.07 * narrow
        turn = math.copysign(1, outward[0])
        upper, knee = draws.one(-0.4, 2.4), draws.one(-0.15, 0.7)
        lower, shin = upper + draws.one(-0.3, 1.4), knee + draws.one(-0.5, 0.1)
        for name, place in (
            ("shoulder", shoulder),
            ("elbow", elbow := shoulder + 0.16 * _towards(upper, turn)),
            ("wrist", elbow + 0.15 * _towards(lower, turn)),
            ("hip", hip),
            ("knee", joint := hip + 0.2 * _towards(knee, turn)),
            ("ankle", joint + 0.19 * _towards(shin, turn)),
            ("eye", up * 0.33 + outward * 0.025),
            ("ear", up * 0.31 + outward * 0.055),
        ):
            places[_INDEX[f"{side}_{name}"]] = place
    places[_INDEX["nose"]] = up * 0.3
    places[_INDEX["neck"]] = up * 0.18
    return places


def _towards(angle: float, turn: float) -> npt.NDArray[np.float64]:
    """Return a unit vector so far from straight down, outward."""
    return np.array([turn * math.sin(angle), math.cos(angle)])


def _paint(picture: Pixels, places: npt.NDArray[np.float64], tall: float, behind: bool) -> None:
    points = {name: tuple(np.rint(place).astype(int).tolist()) for name, place in zip(COCO.joints, places, strict=True)}
    thick = max(2, round(tall * 0.035))
    middle = tuple(np.rint((places[_INDEX["right_ear"]] + places[_INDEX["left_ear"]]) / 2).astype(int).tolist())
    cv2.fillConvexPoly(picture, cv2.convexHull(np.array([points[name] for name in _TRUNK_CORNERS])), _TRUNK)
    cv2.line(picture, points["neck"], middle, _TRUNK, thick)
    cv2.circle(picture, middle, max(2, round(tall * 0.06)), _DARK if behind else _SKIN, -1)
    for start, end, colour in _LIMBS:
        cv2.line(picture, points[start], points[end], colour, thick)
    dot = max(1, round(tall * 0.014))
    for name in COCO.joints:
        if name == "neck" or (behind and name in _FACE):
            continue
        colour = _RIGHT_ARM if name.startswith("right") else _LEFT_ARM if name.startswith("left") else _DARK
        cv2.circle(picture, points[name], dot + (name.endswith(("wrist", "ankle")) and dot), colour, -1)
