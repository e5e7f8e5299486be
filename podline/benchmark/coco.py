"""Measured in child processes: the conversion of COCO-sized JPEGs, against one loop that decodes and resizes them."""

from __future__ import annotations

import importlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from podline.data.coco_letterbox import LetterBox
from podline.data.sources.stick_people import Draws, ground
from podline.progress import silent
from podline.stages import CONVERT, ConvertSpec

WIDTH, HEIGHT = 640, 480
_SIDE = 368
_GRAIN = 2.8
_WITHOUT_SUBSAMPLING = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444)


def make_images(source: str, images: int) -> None:
    """Writes textured JPEGs of COCO's usual size, four fifths of them to train on, with empty annotations.

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
            draws = Draws(0, "benchmark", entry["id"])
            top, left = int(draws.one(0, HEIGHT)), int(draws.one(0, WIDTH))
            drawn = ground(draws, WIDTH, HEIGHT) + grain[top : top + HEIGHT, left : left + WIDTH]
            data = cv2.imencode(".jpg", drawn.clip(0, 255).astype(np.uint8), _WITHOUT_SUBSAMPLING)[1]
            (folder / f"{split}2017" / entry["file_name"]).write_bytes(data.tobytes())
        document = json.dumps({"images": entries, "annotations": []})
        (folder / "annotations" / f"person_keypoints_{split}2017.json").write_text(document)


def convert_ours(source: str, target: str) -> float:
    """Seconds of the conversion stage, with planning, checks, checksums, statistics and manifest."""
    importlib.import_module(CONVERT.run_at.partition(":")[0])
    started = time.perf_counter()
    CONVERT.run(ConvertSpec(root=target, dataset="coco", source=source), silent())
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    return seconds


def decode_and_resize(source: str) -> float:
    """Seconds of a bare loop on one core: read, decode, resize, nothing else."""
    cv2.setNumThreads(1)
    letterbox = LetterBox(WIDTH, HEIGHT, _SIDE)
    paths = sorted(Path(source).glob("*2017/*.jpg"))
    started = time.perf_counter()
    for path in paths:
        pixels: Any = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR_RGB)
        cv2.resize(pixels, letterbox.size, interpolation=cv2.INTER_AREA)
    return time.perf_counter() - started
