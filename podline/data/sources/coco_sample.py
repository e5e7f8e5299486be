"""Draws the sample of people in COCO's layout, with crowds and the cases that go wrong in real data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from podline.data.sources.coco_annotations import PERSON
from podline.data.sources.stick_people import Draws, Person, draw_person, ground
from podline.documents.skeleton import COCO
from podline.errors import SettingsError
from podline.store import digests
from podline.store.contract import explained
from podline.store.folder import FolderStore

_MAX_IMAGES = 100_000
_QUALITY = [cv2.IMWRITE_JPEG_QUALITY, 92]
_CROWD_OF = 12
# Every so many-th image of a split is one of these; all others have one to four labelled people.
_EVERY = 25
_KINDS = {3: "nobody", 8: "crowd", 13: "unlabelled", 18: "grey", 23: "turned"}
# An APP1 segment that says orientation 3: upside down. COCO's annotations are of the pixels as stored.
_UPSIDE_DOWN = b"\xff\xe1\x00\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x03\0\0\0\0\0\0"


@dataclass
class _Split:
    """A split in the making; images are numbered from 1, each annotation has its image's number times 100 plus more."""

    name: str
    first: int
    images: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)

    def annotate(self, image: int, outline: npt.NDArray[np.bool_], **values: Any) -> None:
        """Add an annotation of what was painted."""
        rows, columns = np.flatnonzero(outline.any(axis=1)), np.flatnonzero(outline.any(axis=0))
        if not len(rows):
            return
        box = [columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1]
        number = 100 * image + sum(annotation["image_id"] == image for annotation in self.annotations[-40:])
        given = {"num_keypoints": 0, "keypoints": [0] * (3 * len(COCO.annotated)), "iscrowd": 0, "segmentation": []}
        self.annotations.append(
            given
            | {"id": number, "image_id": image, "category_id": PERSON, "bbox": [int(edge) for edge in box]}
            | {"area": float(outline.sum())}
            | values
        )

    def document(self) -> bytes:
        """Return the annotation file."""
        category = {"supercategory": "person", "id": PERSON, "name": "person", "keypoints": list(COCO.annotated)}
        document = {"images": self.images, "annotations": self.annotations, "categories": [category]}
        return json.dumps({"info": {"description": "stick people, drawn by Podline"}} | document).encode()


def write_coco_sample(folder: Path, train: int = 600, test: int = 100, seed: int = 0) -> Path:
    """Draws the sample of people into a folder: ``annotations/``, ``train2017/`` and ``val2017/``.

    In training also an annotation without an image, a truncated file and a missing one.

    Args:
        folder: made if it is not there.
        train: training images.
        test: images to test on.
        seed: two seeds share nothing; the same one gives the same bytes with the same version of OpenCV.

    Returns:
        The folder, fit to be a conversion's source.

    Raises:
        SettingsError: the counts are out of bounds, or other data are there already.
        StoreError: the folder cannot be written.
    """
    if not (5 <= train <= _MAX_IMAGES and 1 <= test <= _MAX_IMAGES and seed >= 0):
        raise SettingsError(
            f"train={train}, test={test}, seed={seed} vs 5 to {_MAX_IMAGES:,}, 1 to {_MAX_IMAGES:,}, 0 or more"
        )
    store = FolderStore(folder)
    store.sweep()
    with store.workspace("sample") as workspace, explained("write", folder):
        for name in ("annotations", "train2017", "val2017"):
            (workspace / name).mkdir()
        for split, count, first in (("train", train, 1), ("val", test, 500_001)):
            part = _Split(split, first)
            for name, content in _files(part, count, seed):
                (workspace / f"{split}2017" / name).write_bytes(content)
            (workspace / "annotations" / f"person_keypoints_{split}2017.json").write_bytes(part.document())
        for name in ("train2017", "val2017", "annotations"):
            if not (folder / name).exists():
                (workspace / name).rename(folder / name)
            elif _digests(folder / name) != _digests(workspace / name):
                raise SettingsError(f"{folder / name} is there with other content; delete it, or give another folder")
    return folder


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: digests.of_file(path) for path in sorted(folder.iterdir())}


def _files(split: _Split, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield the images of a split by name, its annotations being added on the way."""
    for place in range(count):
        number = split.first + place
        draws = Draws(seed, f"coco sample/{split.name}", number)
        kind = _KINDS.get(place % _EVERY, "")
        picture = _picture(split, number, draws, kind)
        name = f"{number:012}.jpg"
        height, width = picture.shape[:2]
        split.images.append({"id": number, "file_name": name, "width": width, "height": height})
        data = _jpeg(picture[..., 1] if kind == "grey" else picture)
        yield name, data[:2] + _UPSIDE_DOWN + data[2:] if kind == "turned" else data
    if split.name == "train":
        damaged, missing, unknown = (split.first + count + more for more in range(3))
        size = {"width": 320, "height": 240}
        split.images += [{"id": number, "file_name": f"{number:012}.jpg", **size} for number in (damaged, missing)]
        split.annotate(unknown, np.ones((9, 9), np.bool_))
        data = _jpeg(ground(Draws(seed, "coco sample/damaged", 0), 320, 240))
        yield f"{damaged:012}.jpg", data[: len(data) // 2]


def _jpeg(picture: npt.NDArray[np.uint8]) -> bytes:
    return cv2.imencode(".jpg", picture, _QUALITY)[1].tobytes()


def _picture(split: _Split, number: int, draws: Draws, kind: str) -> npt.NDArray[np.uint8]:
    """Draws an image and annotates it; a picture is wide or high, as in COCO."""
    width, height = (320, 240) if draws.one(0, 1) < 0.7 else (240, 320)
    picture = ground(draws, width, height)
    if kind == "crowd":
        _crowd(split, number, draws, picture)
    if kind != "nobody":
        _people(split, number, draws, picture, labelled=kind != "unlabelled")
    return picture


def _crowd(split: _Split, number: int, draws: Draws, picture: npt.NDArray[np.uint8]) -> None:
    """Many small people at the upper border, annotated as one."""
    height, width = picture.shape[:2]
    everybody = np.zeros((height, width), np.bool_)
    for _ in range(_CROWD_OF):
        centre = draws.one(0, width), draws.one(20, 35)
        everybody |= draw_person(picture, draws, centre, draws.one(35, 50)).outline
    split.annotate(number, everybody, iscrowd=1, segmentation={"size": [height, width], "counts": _runs(everybody)})


def _people(split: _Split, number: int, draws: Draws, picture: npt.NDArray[np.uint8], *, labelled: bool) -> None:
    """One to four people, each in a strip of the picture's width, so that they touch but seldom hide each other."""
    height, width = picture.shape[:2]
    count = int(draws.one(1, 1 + min(4, width // 75)))
    strip = width / count
    for place in range(count):
        tall = draws.one(80, min(230, 1.7 * strip + 20))
        centre = (place + draws.one(0.35, 0.65)) * strip, draws.one(0.45, 0.6) * height
        person = draw_person(picture, draws, centre, tall)
        if labelled:
            keypoints = [int(value) for value in person.joints.ravel()]
            split.annotate(
                number, person.outline, num_keypoints=int((person.joints[:, 2] > 0).sum()), keypoints=keypoints
            )
        else:
            split.annotate(number, person.outline, segmentation=_hull(person))


def _hull(person: Person) -> list[list[float]]:
    """Return an outline around a person as one polygon."""
    places = np.argwhere(person.outline)[:, ::-1].astype(np.int32)
    return [cv2.convexHull(places).ravel().astype(float).tolist()]


def _runs(mask: npt.NDArray[np.bool_]) -> list[int]:
    """Run lengths down the columns, first those outside."""
    flat = np.concatenate([[False], mask.T.ravel(), [True]])
    flat[-1] = not flat[-2]
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    return np.diff(edges, prepend=0).tolist()
