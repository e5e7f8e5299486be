"""Tiny COCO data in the official layout, written independently of the code that reads it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from podline.data.people.image import People
from podline.data.people.settings import CocoSettings
from podline.data.people.source import open_people, people_of
from podline.data.sources.source import Source
from podline.recipes import datasets

WIDTH, HEIGHT = 48, 32
# Every joint labelled, a different place for each; COCO's order.
KEYPOINTS = [value for joint in range(17) for value in (5 + 2 * joint, 3 + joint, 1 + joint % 2)]


def jpeg(seed: int, width: int = WIDTH, height: int = HEIGHT, *, grey: bool = False) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    smooth = cv2.blur(pixels, (5, 5))
    return cv2.imencode(".jpg", smooth[..., 0] if grey else smooth)[1].tobytes()


def person(number: int, image: int, **changed: Any) -> dict[str, Any]:
    return {
        "id": number,
        "image_id": image,
        "category_id": 1,
        "iscrowd": 0,
        "num_keypoints": 17,
        "keypoints": list(KEYPOINTS),
        "bbox": [4, 2, 36, 20],
        "area": 500.0,
        "segmentation": [[4, 2, 40, 2, 40, 22, 4, 22]],
    } | changed


class CocoFiles:
    """One split, to be changed before it is written; image ``i`` has the person ``100 i``."""

    def __init__(self, split: str = "train", images: int = 8, first: int = 1) -> None:
        self.split = split
        numbers = range(first, first + images)
        self.images: list[Any] = [
            {"id": n, "file_name": f"{n:012}.jpg", "width": WIDTH, "height": HEIGHT} for n in numbers
        ]
        self.annotations: list[Any] = [person(100 * n, n) for n in numbers]
        self.files = {f"{n:012}.jpg": jpeg(n) for n in numbers}

    def document(self) -> bytes:
        return json.dumps({"images": self.images, "annotations": self.annotations, "categories": []}).encode()

    def write(self, folder: Path, *, zipped: bool = False) -> Path:
        name = f"annotations/person_keypoints_{self.split}2017.json"
        if zipped:
            folder.mkdir(exist_ok=True)
            with zipfile.ZipFile(folder / "annotations_trainval2017.zip", "a", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(name, self.document())
            with zipfile.ZipFile(folder / f"{self.split}2017.zip", "w") as archive:
                for number, (file, content) in enumerate(self.files.items()):
                    method = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
                    archive.writestr(f"{self.split}2017/{file}", content, method)
            return folder
        (folder / "annotations").mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(self.document())
        (folder / f"{self.split}2017").mkdir()
        for file, content in self.files.items():
            (folder / f"{self.split}2017" / file).write_bytes(content)
        return folder


def open_coco(folder: Path | str, work: Path, **settings: Any) -> Source:
    """A source of COCO's people, of squares of 64 pixels unless something else is given."""
    return open_people(datasets.find("coco"), str(folder), CocoSettings(**{"side": 64, **settings}), work)


def people_in(source: Source) -> dict[str, list[People]]:
    """The people of each image to convert, by split, the images ordered by id."""
    kept = {split: source.images.ordered(source.images.kept(split)) for split in source.sizes}
    return {
        split: sorted(people_of(source.images, numbers), key=lambda image: image.id) for split, numbers in kept.items()
    }
