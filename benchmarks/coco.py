"""Measured in child processes: the conversion of COCO-sized JPEGs, against one loop that decodes and resizes them."""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from podline.base.progress import silent
from podline.data.letterbox import LetterBox
from podline.data.people.sample import ground
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT

WIDTH, HEIGHT = 640, 480
_SIDE = 368
_GRAIN = 2.8
_WITHOUT_SUBSAMPLING = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444)


def make_images(source: str, images: int) -> None:
    """Write textured JPEGs of COCO's usual size, four fifths to train on, each with two annotated people.

    The 80 images of COCO that the tests know have 163 kB on average, and no chroma subsampling; so have these.
    """
    folder = Path(source)
    grain = np.random.default_rng(0).normal(0, _GRAIN, (2 * HEIGHT, 2 * WIDTH, 3))
    (folder / "annotations").mkdir(parents=True)
    edges = {"train": range(images * 4 // 5), "val": range(images * 4 // 5, images)}
    for split, numbers in edges.items():
        (folder / f"{split}2017").mkdir()
        entries = [{"id": n, "file_name": f"{n:012}.jpg", "width": WIDTH, "height": HEIGHT} for n in numbers]
        for entry in entries:
            chance = np.random.default_rng([1, entry["id"]])
            top, left = chance.integers(HEIGHT), chance.integers(WIDTH)
            drawn = ground(chance, WIDTH, HEIGHT) + grain[top : top + HEIGHT, left : left + WIDTH]
            data = cv2.imencode(".jpg", drawn.clip(0, 255).astype(np.uint8), _WITHOUT_SUBSAMPLING)[1]
            (folder / f"{split}2017" / entry["file_name"]).write_bytes(data.tobytes())
        document = json.dumps(
            {"images": entries, "annotations": [_person(2 * n + k, n) for n in numbers for k in (0, 1)]}
        )
        (folder / "annotations" / f"person_keypoints_{split}2017.json").write_text(document)
    os.sync()  # or the disk would be busy with them while they are read


def _person(number: int, image: int) -> dict[str, Any]:
    """Return a person with joints anywhere in a box of a quarter of the image."""
    chance = np.random.default_rng([2, number])
    left, top = chance.uniform(0, WIDTH // 2), chance.uniform(0, HEIGHT // 2)
    x, y = left + chance.uniform(0, WIDTH // 2, 17), top + chance.uniform(0, HEIGHT // 2, 17)
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


def convert_ours(source: str, target: str) -> float:
    """Return the seconds of the conversion stage, with planning, checks, checksums, statistics and manifest."""
    importlib.import_module(CONVERT.run_at.partition(":")[0])
    gc.freeze()  # as the process of a stage does
    started = time.perf_counter()
    CONVERT.run(ConvertSpec(root=target, dataset="coco", source=source), silent())
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    return seconds


def make_data_set(source: str, root: str) -> str:
    """Convert the images; return the data set's folder in the store."""
    return CONVERT.run(ConvertSpec(root=root, dataset="coco", source=source), silent()).folder


def decode_and_resize(source: str) -> float:
    """Return the seconds of a bare loop on one core: read, decode, resize, nothing else."""
    cv2.setNumThreads(1)
    letterbox = LetterBox(WIDTH, HEIGHT, _SIDE)
    paths = sorted(Path(source).glob("*2017/*.jpg"))
    started = time.perf_counter()
    for path in paths:
        pixels: Any = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR_RGB)
        cv2.resize(pixels, letterbox.size, interpolation=cv2.INTER_AREA)
    return time.perf_counter() - started
