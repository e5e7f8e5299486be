"""Conversions of small JPEGs in class folders, in child processes: the whole command, and two plain processes."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.conversion import measured

SIDE = 32
_CLASSES, _WORKERS = 10, 2


def make_source(source: str, images: int) -> None:
    """Write JPEGs of 32 × 32 pixels, smooth random colours with added grain, in ten class folders."""
    random = np.random.default_rng(0)
    for number in range(images):
        folder = Path(source) / f"class{number % _CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        coarse: Any = cv2.resize(random.integers(0, 256, (4, 4, 3), np.uint8), (SIDE, SIDE))
        grainy = (coarse + random.normal(0, 6, coarse.shape)).clip(0, 255).astype(np.uint8)
        (folder / f"{number:06}.jpg").write_bytes(cv2.imencode(".jpg", grainy)[1].tobytes())
    os.sync()  # otherwise the disk would still write them during the measurement


def convert(source: str, target: str) -> dict[str, float]:
    """Measure the command ``podline convert``, with its start, checks, near-duplicates, checksums and manifest."""
    command = [sys.executable, "-m", "podline.cli", "convert", "images", "--source", source, "--root", target]
    command += ["--set", f"conversion.side={SIDE}"]
    run = partial(subprocess.run, command, check=True, capture_output=True)
    return measured(source, target, run)


def convert_plain(source: str, target: str) -> dict[str, float]:
    """Measure two processes that start TensorFlow, decode and resize images, and write TFRecords."""

    def work() -> None:
        paths = sorted(map(str, Path(source).glob("*/*.jpg")))
        Path(target).mkdir()
        parts = [paths[worker::_WORKERS] for worker in range(_WORKERS)]
        with ProcessPoolExecutor(_WORKERS, get_context("spawn")) as pool:
            list(pool.map(partial(_write, target), parts, range(_WORKERS)))

    return measured(source, target, work)


def _write(target: str, paths: list[str], number: int) -> None:
    import tensorflow as tf  # noqa: PLC0415 (its start is measured)

    from benchmarks import plain  # noqa: PLC0415

    cv2.setNumThreads(1)
    with tf.io.TFRecordWriter(f"{target}/{number}.tfrecord") as writer:
        for path in paths:
            pixels: Any = cv2.imdecode(np.frombuffer(Path(path).read_bytes(), np.uint8), cv2.IMREAD_COLOR_RGB)
            image: Any = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
            label = int(Path(path).parent.name.removeprefix("class"))
            writer.write(plain.example(image, label).SerializeToString())
