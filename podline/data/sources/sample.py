"""Generates the sample: a synthetic data set in CIFAR-10's binary layout, which needs no download."""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.base.errors import SettingsError
from podline.data.order import permutation
from podline.data.rawfiles import require_local
from podline.data.sources import class_names
from podline.data.sources.cifar import CIFAR10
from podline.data.sources.pickles import ROW
from podline.data.sources.shapes import draw
from podline.store.contract import explained
from podline.store.folder import FolderStore

FOLDER = "cifar-10-batches-bin"
_CHUNK = 500
_MAX_IMAGES = 500_000


def write_sample(folder: Path, train: int = 5000, test: int = 1000, seed: int = 0) -> Path:
    """Generate the sample data set in a folder.

    Args:
        folder: the folder, created if missing; the files go to its ``cifar-10-batches-bin``.
        train: number of training images, which are divided among five batches.
        test: number of test images.
        seed: seed of the images; two seeds share no image, and a seed gives the same bytes on any machine.

    Returns:
        The folder, which a conversion can use as its source.

    Raises:
        SettingsError: the counts are out of bounds, or the folder has another data set or is not on this machine.
        StoreError: the folder cannot be written.
    """
    require_counts(train, test, seed, _MAX_IMAGES)
    return write_drawn(folder, ((f"{FOLDER}/{name}", pieces) for name, pieces in _files(train, test, seed)))


def require_counts(train: int, test: int, seed: int, most: int) -> None:
    """Check the numbers of images to generate, and the seed."""
    if not (5 <= train <= most and 1 <= test <= most and seed >= 0):
        raise SettingsError(
            f"got train={train}, test={test}, seed={seed}, expected train from 5 to {most:,}, test from 1 to {most:,}, "
            "and seed from 0"
        )


def write_drawn(folder: Path, files: Iterable[tuple[str, Iterable[bytes]]]) -> Path:
    """Write files into subfolders of a folder, and return the folder; a subfolder appears only when complete.

    Args:
        folder: the folder, created if missing; a subfolder that has the files with the same content is kept.
        files: each file's name, ``subfolder/file``, and its content in pieces.

    Raises:
        SettingsError: a subfolder exists with other content, or the folder is not on this machine.
        StoreError: the folder cannot be written.
    """
    require_local(folder)
    store = FolderStore(folder)
    store.sweep()
    with store.workspace("sample") as workspace, explained("write", folder):
        for name, pieces in files:
            (workspace / name).parent.mkdir(exist_ok=True)
            with (workspace / name).open("wb") as stream:
                stream.writelines(pieces)
        for drawn in sorted(workspace.iterdir(), key=lambda path: path.name, reverse=True):
            target, names = folder / drawn.name, {path.name for path in drawn.iterdir()}
            if not target.exists():
                drawn.rename(target)
            elif filecmp.cmpfiles(drawn, target, names, shallow=False)[1:] != ([], []):
                raise SettingsError(f"{target} exists with other content; delete it, or give another folder")
    return folder


def _files(train: int, test: int, seed: int) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield each file's name, and its content in pieces."""
    for split, count in (("train", train), ("test", test)):
        names = CIFAR10.splits[split]
        # Equal numbers of each class, as far as possible, in random order.
        labels = (permutation(seed, f"sample/{split}/labels", 0, count) % len(class_names.SAMPLE)).astype(np.uint8)
        for number, name in enumerate(names):  # the last batch has the rest
            first, end = number * (count // len(names)), (number + 1) * (count // len(names))
            images = np.arange(first, count if name == names[-1] else end)
            yield f"{name}.bin", _rows(seed, split, images, labels[images])
    yield CIFAR10.labels[0].names_file, [f"{name}\n".encode() for name in class_names.SAMPLE]


def _rows(seed: int, split: str, images: npt.NDArray[np.int64], labels: npt.NDArray[np.uint8]) -> Iterator[bytes]:
    """Yield rows of a batch: the label's byte, then the planes of the image."""
    for first in range(0, len(images), _CHUNK):
        some = slice(first, first + _CHUNK)
        pixels = draw(seed, split, images[some], labels[some]).reshape(-1, ROW)
        yield np.column_stack([labels[some], pixels]).tobytes()
