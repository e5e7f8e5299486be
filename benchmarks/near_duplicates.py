"""Measures the search for near-duplicates on real pictures: what it finds of known pairs, and what else it finds.

    python -m benchmarks.near_duplicates [--side 64] SOURCE [SOURCE …]

A source is images of one's own in any layout. Of some of its pictures, changed copies are made before they are fitted;
the share of them that the search finds is the recall. Every other pair that it finds across the source's own splits is
false, or a real near-duplicate: `podline data check SOURCE --near-duplicates FILE` shows which.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from podline.data.fitting import fitted, shown_size
from podline.data.images.near import near_duplicates
from podline.data.images.opening import ImagesSource, open_images
from podline.data.images.settings import ImagesSettings
from podline.data.pictures import picture_of
from podline.recipes.datasets import SHIPPED

Picture = npt.NDArray[np.uint8]
Change = Callable[[Picture], Picture]

_PICTURES = 500


def _compressed(quality: int) -> Change:
    def change(picture: Picture) -> Picture:
        data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
        return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)

    return change


def _resized(scale: float) -> Change:
    def change(picture: Picture) -> Picture:
        size = [max(1, round(side * scale)) for side in picture.shape[1::-1]]
        return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)

    return change


def _cropped(share: float) -> Change:
    """What is cut off is divided between the edges by chance."""
    rng = np.random.default_rng(0)

    def change(picture: Picture) -> Picture:
        rows, columns = (round(share * side) for side in picture.shape[:2])
        top, left = rng.integers(0, (rows + 1, columns + 1)).tolist()
        return picture[top : picture.shape[0] - rows + top, left : picture.shape[1] - columns + left]

    return change


def _brightened(factor: float) -> Change:
    return lambda picture: np.clip(picture * factor, 0, 255).astype(np.uint8)


def _blurred(picture: Picture) -> Picture:
    return np.asarray(cv2.GaussianBlur(picture, (0, 0), max(0.5, min(picture.shape[:2]) / 150)), np.uint8)


CHANGES: dict[str, Change] = {
    "JPEG, quality 95": _compressed(95),
    "JPEG, quality 75": _compressed(75),
    "JPEG, quality 50": _compressed(50),
    "resized to 0.9": _resized(0.9),
    "resized to 0.7": _resized(0.7),
    "resized to 0.5": _resized(0.5),
    "10 % darker": _brightened(0.9),
    "10 % brighter": _brightened(1.1),
    "blurred": _blurred,
    "cropped by 1 %": _cropped(0.01),
    "cropped by 2 %": _cropped(0.02),
    "cropped by 5 %": _cropped(0.05),
}


def recall(pictures: Sequence[Picture], change: Change, settings: ImagesSettings) -> float:
    """The share of changed pictures whose original is found among all originals."""
    every = [*(change(picture) for picture in pictures), *pictures]
    images = np.stack([fitted(np.ascontiguousarray(one), settings.shape, settings.fit) for one in every])
    boxes = np.array([shown_size(one.shape[0], one.shape[1], settings.shape, settings.fit) for one in every])
    rows, count = np.arange(len(every)), len(pictures)
    found = near_duplicates(images.__getitem__, boxes, rows[:count], rows[count:])
    return float(np.count_nonzero(found.test == found.train)) / count


def some_pictures(source: str) -> list[Picture]:
    """Pictures of a folder at their own size, evenly over its files."""
    files = sorted(path for path in Path(source).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    chosen = files[:: max(1, len(files) // _PICTURES)][:_PICTURES]
    return [picture_of(path.read_bytes()).pixels for path in chosen]


def measure(source: str, settings: ImagesSettings) -> list[str]:
    """What is found in one source, in words."""
    with tempfile.TemporaryDirectory() as work:
        opened: ImagesSource = open_images(SHIPPED["images"], source, settings, Path(work))
        started = time.perf_counter()
        near = len(opened.near)
        seconds = time.perf_counter() - started
    train, test = opened.sizes["train"], opened.sizes["test"]
    pictures = some_pictures(source)
    return [
        f"{source}, side {settings.side}: {train:,} to train on, {test:,} to test on; searched in {seconds:.2f} s",
        f"  {near:,} test images have one: {near / test:.2%}, {near / (train * test / 1e6):.3f} in a million pairs",
        *(f"  {name:18} {recall(pictures, change, settings):6.1%}" for name, change in CHANGES.items()),
    ]


def main() -> None:
    """Measures every source that is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--channels", type=int, choices=(1, 3), default=3)
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    given = parser.parse_args()
    for source in given.sources:
        lines = measure(source, ImagesSettings(side=given.side, channels=given.channels))
        sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
