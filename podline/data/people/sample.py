"""Generate a sample data set of people in COCO's layout: stick figures, with crowds and the problems of real data.

A person's right limbs have warm colours and the left limbs cold colours, so that left and right can be distinguished
from the front and from behind.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from numpy.random import Generator, default_rng

from podline.base.arrays import Pixels
from podline.data.people.annotations import PERSON
from podline.data.sources.sample import require_counts, write_drawn
from podline.documents.skeleton import COCO

Outline = npt.NDArray[np.bool_]
Places = npt.NDArray[np.float64]

_MAX_IMAGES = 100_000
_CROWD_OF = 12
# In each group of 25 images of a split, these positions are special cases; other images have one to four people.
_EVERY = 25
_KINDS = {3: "nobody", 8: "crowd", 13: "unlabelled", 18: "grey", 23: "turned"}
# An APP1 segment with orientation 3 (upside down). COCO annotates the pixels as stored.
_UPSIDE_DOWN = b"\xff\xe1\x00\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x03\0\0\0\0\0\0"
_RIGHT_ARM, _LEFT_ARM, _RIGHT_LEG, _LEFT_LEG = (40, 40, 230), (230, 60, 40), (40, 150, 250), (230, 210, 40)  # BGR
_TRUNK, _SKIN, _DARK = (60, 190, 60), (170, 200, 235), (20, 20, 20)
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


def write_coco_sample(folder: Path, train: int = 600, test: int = 100, seed: int = 0) -> Path:
    """Generate the sample of people in a folder: ``annotations/``, ``train2017/`` and ``val2017/``; return the folder.

    The training split also has an annotation without an image, a truncated file and a missing file. The bytes depend on
    the seed and the versions of NumPy and OpenCV; different seeds share no image.

    Raises:
        SettingsError: the counts are out of bounds, or the folder contains other data.
        StoreError: the folder cannot be written.
    """
    require_counts(train, test, seed, _MAX_IMAGES)
    return write_drawn(folder, _files(train, test, seed))


def _files(train: int, test: int, seed: int) -> Iterator[tuple[str, list[bytes]]]:
    for split, count, first in ((_Split("train", seed), train, 1), (_Split("val", seed), test, 500_001)):
        for name, content in split.files(range(first, first + count)):
            yield f"{split.name}2017/{name}", [content]
        yield f"annotations/person_keypoints_{split.name}2017.json", [split.document()]


@dataclass
class _Split:
    """Generates one split; an annotation's id is its image's number times 100 plus a counter."""

    name: str
    seed: int
    images: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)

    def files(self, numbers: range) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of each image; collect the annotations."""
        for place, number in enumerate(numbers):
            kind = _KINDS.get(place % _EVERY, "")
            picture = self._picture(number, default_rng([self.seed, number]), kind)
            self._list(number, picture.shape[1], picture.shape[0])
            data = _jpeg(picture[..., 1] if kind == "grey" else picture)
            yield f"{number:012}.jpg", data[:2] + _UPSIDE_DOWN + data[2:] if kind == "turned" else data
        if self.name == "train":
            damaged, missing, unknown = range(numbers.stop, numbers.stop + 3)
            self._list(damaged, 320, 240)
            self._list(missing, 320, 240)
            self._annotate(unknown, np.ones((9, 9), np.bool_))
            data = _jpeg(ground(default_rng([self.seed, damaged]), 320, 240))
            yield f"{damaged:012}.jpg", data[: len(data) // 2]

    def document(self) -> bytes:
        category = {"supercategory": "person", "id": PERSON, "name": "person", "keypoints": list(COCO.annotated)}
        document = {"images": self.images, "annotations": self.annotations, "categories": [category]}
        return json.dumps({"info": {"description": "stick people, drawn by Podline"}} | document).encode()

    def _list(self, number: int, width: int, height: int) -> None:
        self.images.append({"id": number, "file_name": f"{number:012}.jpg", "width": width, "height": height})

    def _annotate(self, image: int, outline: Outline, **values: Any) -> None:
        """Add an annotation with the box and area of a painted mask; nothing if the mask is empty."""
        left, top, width, height = cv2.boundingRect(outline.astype(np.uint8))
        if not width:
            return
        number = 100 * image + sum(annotation["image_id"] == image for annotation in self.annotations[-40:])
        given = {"num_keypoints": 0, "keypoints": [0] * (3 * len(COCO.annotated)), "iscrowd": 0, "segmentation": []}
        known = {"id": number, "image_id": image, "category_id": PERSON, "bbox": [left, top, width, height]}
        self.annotations.append(given | known | {"area": float(outline.sum())} | values)

    def _picture(self, number: int, chance: Generator, kind: str) -> Pixels:
        """Draw an image and annotate it; like in COCO, images are landscape or portrait."""
        width, height = (320, 240) if chance.random() < 0.7 else (240, 320)
        picture = ground(chance, width, height)
        if kind == "crowd":
            everybody = np.zeros((height, width), np.bool_)
            for _ in range(_CROWD_OF):
                centre = chance.uniform(0, width), chance.uniform(20, 35)
                everybody |= _draw_person(picture, chance, centre, chance.uniform(35, 50))[1]
            counts = {"size": [height, width], "counts": _run_lengths(everybody)}
            self._annotate(number, everybody, iscrowd=1, segmentation=counts)
        if kind != "nobody":
            self._people(number, chance, picture, labelled=kind != "unlabelled")
        return picture

    def _people(self, number: int, chance: Generator, picture: Pixels, *, labelled: bool) -> None:
        """Draw one to four people, each in a vertical strip, so that they touch but seldom occlude each other."""
        height, width = picture.shape[:2]
        count = int(chance.uniform(1, 1 + min(4, width // 75)))
        strip = width / count
        for place in range(count):
            tall = chance.uniform(80, min(230, 1.7 * strip + 20))
            centre = (place + chance.uniform(0.35, 0.65)) * strip, chance.uniform(0.45, 0.6) * height
            joints, outline = _draw_person(picture, chance, centre, tall)
            if labelled:
                seen = int((joints[:, 2] > 0).sum())
                self._annotate(number, outline, num_keypoints=seen, keypoints=joints.ravel().astype(int).tolist())
            else:
                hull = cv2.convexHull(np.argwhere(outline)[:, ::-1].astype(np.int32))
                self._annotate(number, outline, segmentation=[hull.ravel().astype(float).tolist()])


def _jpeg(picture: Pixels) -> bytes:
    return cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 92])[1].tobytes()


def _run_lengths(mask: Outline) -> list[int]:
    """Return COCO's run lengths of a mask: column by column, background first."""
    flat = np.concatenate([[False], mask.T.ravel()])
    return np.diff(np.flatnonzero(np.diff(flat)), prepend=0, append=mask.size).tolist()


def ground(chance: Generator, width: int, height: int) -> Pixels:
    """Draw a textured background, uint8 (height, width, 3), of coarse and fine patches and grain, never bright."""
    picture = np.zeros((height, width, 3), np.float32)
    for cells, strength in ((6, 90.0), (24, 40.0)):
        blotches = chance.uniform(0, strength, (cells, cells, 3)).astype(np.float32)
        picture += cv2.resize(blotches, (width, height), interpolation=cv2.INTER_CUBIC)
    grain = chance.uniform(0, 20, (height // 2, width // 2)).astype(np.float32)
    picture += cv2.resize(grain, (width, height), interpolation=cv2.INTER_NEAREST)[..., None]
    return picture.clip(0, 255).astype(np.uint8)


def _draw_person(
    picture: Pixels, chance: Generator, centre: tuple[float, float], tall: float
) -> tuple[Places, Outline]:
    """Draw a person into an image.

    Returns:
        The joints, float64 (17, 3), in COCO's order: x, y in whole pixels, visibility; zeros for joints outside the
        image, and for the face of a person seen from behind. And the mask of painted pixels.
    """
    behind = chance.random() < 0.2
    places = _pose(chance, behind)
    places = {name: place * tall + centre for name, place in places.items()}
    painted = picture.copy()
    _paint(painted, places, tall, behind)
    outline = (painted != picture).any(axis=-1)
    picture[:] = painted
    joints = np.array([[*np.rint(places[name]), 2.0] for name in COCO.annotated])
    inside = ((joints[:, :2] >= 0) & (joints[:, :2] < picture.shape[1::-1])).all(axis=1)
    joints[~inside | (np.isin(COCO.annotated, _FACE) & behind)] = 0
    return joints, outline


def _pose(chance: Generator, behind: bool) -> dict[str, Places]:
    """Return all joints, x and y, of a random person of height one, relative to the middle of the body."""
    lean = chance.uniform(-0.35, 0.35)
    up, across = np.array([math.sin(lean), -math.cos(lean)]), np.array([math.cos(lean), math.sin(lean)])
    places, narrow = {"nose": up * 0.3, "neck": up * 0.18}, chance.uniform(0.6, 1.0)
    for side, sign in (("right", -1), ("left", 1)):
        outward = across * sign * (-1 if behind else 1)
        turn = math.copysign(1, outward[0])
        upper, knee = chance.uniform(-0.4, 2.4), chance.uniform(-0.15, 0.7)
        lower, shin = upper + chance.uniform(-0.3, 1.4), knee + chance.uniform(-0.5, 0.1)
        found = {"shoulder": up * 0.18 + outward * 0.11 * narrow, "hip": -up * 0.12 + outward * 0.07 * narrow}
        found["elbow"] = found["shoulder"] + 0.16 * _towards(upper, turn)
        found["wrist"] = found["elbow"] + 0.15 * _towards(lower, turn)
        found["knee"] = found["hip"] + 0.2 * _towards(knee, turn)
        found["ankle"] = found["knee"] + 0.19 * _towards(shin, turn)
        found |= {"eye": up * 0.33 + outward * 0.025, "ear": up * 0.31 + outward * 0.055}
        places |= {f"{side}_{name}": place for name, place in found.items()}
    return places


def _towards(angle: float, turn: float) -> Places:
    """Return the unit vector at an outward angle from straight down."""
    return np.array([turn * math.sin(angle), math.cos(angle)])


def _paint(picture: Pixels, places: dict[str, Places], tall: float, behind: bool) -> None:
    points = {name: tuple(np.rint(place).astype(int).tolist()) for name, place in places.items()}
    thick = max(2, round(tall * 0.035))
    middle = tuple(np.rint((places["right_ear"] + places["left_ear"]) / 2).astype(int).tolist())
    cv2.fillConvexPoly(picture, cv2.convexHull(np.array([points[name] for name in _TRUNK_CORNERS])), _TRUNK)
    cv2.line(picture, points["neck"], middle, _TRUNK, thick)
    cv2.circle(picture, middle, max(2, round(tall * 0.06)), _DARK if behind else _SKIN, -1)
    for start, end, colour in _LIMBS:
        cv2.line(picture, points[start], points[end], colour, thick)
    dot = max(1, round(tall * 0.014))
    for name in COCO.annotated:
        if not (behind and name in _FACE):
            colour = _RIGHT_ARM if name.startswith("right") else _LEFT_ARM if name.startswith("left") else _DARK
            cv2.circle(picture, points[name], dot * (2 if name.endswith(("wrist", "ankle")) else 1), colour, -1)
