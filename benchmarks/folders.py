"""Measured in child processes: the whole command on small JPEGs in class folders, against two plain processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np

SIDE = 32
_CLASSES, _WORKERS = 10, 2


def make_images(source: str, images: int) -> None:
    """Write smooth, grainy JPEGs of 32 × 32 pixels in ten class folders."""
    chance = np.random.default_rng(0)
    for number in range(images):
        folder = Path(source) / f"class{number % _CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        coarse: Any = cv2.resize(chance.integers(0, 256, (4, 4, 3), np.uint8), (SIDE, SIDE))
        grainy = (coarse + chance.normal(0, 6, coarse.shape)).clip(0, 255).astype(np.uint8)
        (folder / f"{number:06}.jpg").write_bytes(cv2.imencode(".jpg", grainy)[1].tobytes())
    os.sync()  # or the disk would be busy with them while they are read


def convert_ours(source: str, target: str) -> float:
    """Return the seconds of the whole command, with start, checks, near-duplicates, checksums and manifest."""
    command = [sys.executable, "-m", "podline.cli", "convert", "images", "--source", source, "--root", target]
    started = time.perf_counter()
    subprocess.run([*command, "--set", f"conversion.side={SIDE}"], check=True, capture_output=True)  # noqa: S603 (ours)
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    return seconds


def convert_plain(source: str, target: str) -> float:
    """Return the seconds of two processes that decode, resize and write TFRecords; with the start of TensorFlow."""
    started = time.perf_counter()
    paths = sorted(map(str, Path(source).glob("*/*.jpg")))
    Path(target).mkdir()
    parts = [paths[worker::_WORKERS] for worker in range(_WORKERS)]
    with ProcessPoolExecutor(_WORKERS, get_context("spawn")) as pool:
        list(pool.map(partial(_write, target), parts, range(_WORKERS)))
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    return seconds


def _write(target: str, paths: list[str], number: int) -> None:
    import tensorflow as tf  # noqa: PLC0415 (its start is measured)

    cv2.setNumThreads(1)
    with tf.io.TFRecordWriter(f"{target}/{number}.tfrecord") as writer:
        for path in paths:
            pixels: Any = cv2.imdecode(np.frombuffer(Path(path).read_bytes(), np.uint8), cv2.IMREAD_COLOR_RGB)
            image = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
            label = int(Path(path).parent.name.removeprefix("class"))
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
