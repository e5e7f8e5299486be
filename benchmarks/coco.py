"""COCO-sized JPEGs and a bare loop that decodes and resizes them, in child processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.conversion import measured
from podline.data.letterbox import LetterBox
from podline.data.people.sample import ground

WIDTH, HEIGHT = 640, 480
_SIDE = 368
_GRAIN = 2.8
_WITHOUT_SUBSAMPLING = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444)


def make_source(source: str, images: int) -> None:
    """Write textured JPEGs of COCO's usual size, four fifths for training, each with two annotated people.

    Like 80 images of COCO in the tests' data, they have 163 kB on average, and no chroma subsampling.
    """
    folder = Path(source)
    grain = np.random.default_rng(0).normal(0, _GRAIN, (2 * HEIGHT, 2 * WIDTH, 3))
    (folder / "annotations").mkdir(parents=True)
    edges = {"train": range(images * 4 // 5), "val": range(images * 4 // 5, images)}
    for split, numbers in edges.items():
        (folder / f"{split}2017").mkdir()
        entries = [{"id": n, "file_name": f"{n:012}.jpg", "width": WIDTH, "height": HEIGHT} for n in numbers]
        for entry in entries:
            random = np.random.default_rng([1, entry["id"]])
            top, left = random.integers(HEIGHT), random.integers(WIDTH)
            image = ground(random, WIDTH, HEIGHT) + grain[top : top + HEIGHT, left : left + WIDTH]
            data = cv2.imencode(".jpg", image.clip(0, 255).astype(np.uint8), _WITHOUT_SUBSAMPLING)[1]
            (folder / f"{split}2017" / entry["file_name"]).write_bytes(data.tobytes())
        document = json.dumps(
            {"images": entries, "annotations": [_person(2 * n + k, n) for n in numbers for k in (0, 1)]}
        )
        (folder / "annotations" / f"person_keypoints_{split}2017.json").write_text(document)
    os.sync()  # otherwise the disk would still write them during the measurement


def _person(number: int, image: int) -> dict[str, Any]:
    """Return a person with joints anywhere in a box of a quarter of the image."""
    random = np.random.default_rng([2, number])
    left, top = random.uniform(0, WIDTH // 2), random.uniform(0, HEIGHT // 2)
    x, y = left + random.uniform(0, WIDTH // 2, 17), top + random.uniform(0, HEIGHT // 2, 17)
    joints = np.stack([x, y, np.full(17, 2)], axis=1).astype(int)
    return {
        "id": number,
        "image_id": image,
        "category_id": 1,
        "iscrowd": 0,
        "num_keypoints": 17,
        "keypoints": joints.ravel().tolist(),
        "bbox": [left, top, WIDTH / 2, HEIGHT / 2],
        "area": WIDTH * HEIGHT / 8,
        "segmentation": [],
    }


def convert_plain(source: str, target: str) -> dict[str, float]:
    """Measure a loop on one core that reads, decodes and resizes images, and writes nothing; see :func:`measured`."""
    cv2.setNumThreads(1)
    letterbox = LetterBox(WIDTH, HEIGHT, _SIDE)
    paths = sorted(Path(source).glob("*2017/*.jpg"))

    def work() -> None:
        for path in paths:
            pixels: Any = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR_RGB)
            cv2.resize(pixels, letterbox.size, interpolation=cv2.INTER_AREA)

    return measured(source, target, work)
