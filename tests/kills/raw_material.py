"""Raw data that are converted and learned in seconds: ten classes by brightness, and drawn people."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from podline.data.sources.coco_sample import write_coco_sample


def write_grey_cifar(folder: Path, *, train: int = 1200, test: int = 300) -> Path:
    """CIFAR-10's six binary files; a class is a brightness, so that a linear model tells it from guessing."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    rows = random.integers(0, 256, (train + test, 3073), np.uint8)
    rows[:, 0] = random.integers(0, 10, train + test)
    rows[:, 1:] = rows[:, 1:] // 8 + 22 * rows[:, :1]
    for number in range(5):
        rows[number:train:5].tofile(folder / f"data_batch_{number + 1}.bin")
    rows[train:].tofile(folder / "test_batch.bin")
    return folder


def write_people(folder: Path) -> Path:
    """COCO's layout with drawn people."""
    return write_coco_sample(folder, train=60, test=20)
