"""A tiny data set of keypoints in COCO's format: mice with five joints, one in each image of noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from podline.data.sources.source import Source, open_raw
from podline.recipes import datasets

JOINTS = ("nose", "left_ear", "right_ear", "back", "tail")
WIDTH, HEIGHT = 80, 60


def document(images: int = 20, first: int = 1) -> dict[str, Any]:
    """Annotations of mice: PNG images, an instance in each, as few keys as COCO's format allows."""
    numbers = range(first, first + images)
    joints = np.random.default_rng(0).integers(5, 55, (images, 5, 3))
    joints[..., 2] = 2
    return {
        "images": [{"id": n, "file_name": f"mouse {n}.png", "width": WIDTH, "height": HEIGHT} for n in numbers],
        "annotations": [
            {"id": n, "image_id": n, "category_id": 3, "keypoints": one.ravel().tolist()}
            for n, one in zip(numbers, joints, strict=True)
        ],
        "categories": [{"id": 3, "name": "mouse", "keypoints": list(JOINTS), "skeleton": [[1, 2], [1, 3], [1, 4]]}],
    }


def written(folder: Path, made: dict[str, Any], name: str = "mice.json", images: str = "images") -> Path:
    (folder / images).mkdir(parents=True, exist_ok=True)
    for entry in made["images"]:
        noise = np.random.default_rng([entry["id"], *images.encode()])
        pixels = noise.integers(0, 255, (HEIGHT, WIDTH, 3)).astype(np.uint8)
        cv2.imwrite(str(folder / images / entry["file_name"]), pixels)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return annotated(folder, made, name)


def annotated(source: Path, made: dict[str, Any], name: str = "mice.json") -> Path:
    """Write other annotations of images that are there."""
    (source / name).write_text(json.dumps(made))
    return source


def opened(source: Path, **settings: Any) -> Source:
    dataset = datasets.find("keypoints")
    given = dataset.settings_of({"side": 64, "max_people": 2, **settings})
    found = open_raw(dataset, str(source), given, source.parent / f"{source.name} work")
    assert found.skeleton
    return found
