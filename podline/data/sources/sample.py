"""Draws the sample: a data set in CIFAR-10's layout that needs no network.

The files equal CIFAR-10's python layout, as pickled by Python 2. This module writes the pickle opcodes itself, because
the output of Python and NumPy changes with their versions, and a seed must give the same bytes.
"""

from __future__ import annotations

import filecmp
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.data.order import permutation
from podline.data.sources import class_names
from podline.data.sources.cifar import CIFAR10
from podline.data.sources.shapes import draw
from podline.errors import SettingsError
from podline.store.contract import explained
from podline.store.folder import FolderStore

FOLDER = "cifar-10-batches-py"
_PIXELS = 3072
_CHUNK = 500
# A pickled byte string is limited to 2 GiB, and one string holds all test images.
_MAX_IMAGES = 500_000


def write_sample(folder: Path, train: int = 5000, test: int = 1000, seed: int = 0) -> Path:
    """Draw the sample data set into a folder.

    Args:
        folder: the folder, created if missing; the files go to its ``cifar-10-batches-py``.
        train: number of training images, over five batches.
        test: number of test images.
        seed: different seeds share no image; a seed gives the same bytes on any machine.

    Returns:
        The folder, which a conversion can use as its source.

    Raises:
        SettingsError: the counts are out of bounds, or the folder has another data set.
        StoreError: the folder cannot be written.
    """
    if not (5 <= train <= _MAX_IMAGES and 1 <= test <= _MAX_IMAGES and seed >= 0):
        raise SettingsError(
            f"train={train}, test={test}, seed={seed} vs 5 to {_MAX_IMAGES:,}, 1 to {_MAX_IMAGES:,}, 0 or more"
        )
    target, store = folder / FOLDER, FolderStore(folder)
    store.sweep()
    with store.workspace("sample") as workspace, explained("write", target):
        drawing = workspace / FOLDER
        drawing.mkdir()
        for name, pieces in _files(train, test, seed):
            with (drawing / name).open("wb") as stream:
                stream.writelines(pieces)
        if not target.exists():
            drawing.rename(target)
        elif filecmp.cmpfiles(drawing, target, [path.name for path in drawing.iterdir()], shallow=False)[1:] != (
            [],
            [],
        ):
            raise SettingsError(f"{target} exists with other content; delete it, or give another folder")
    return folder


def _files(train: int, test: int, seed: int) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield each file's name, and its content in pieces."""
    for split, count in (("train", train), ("test", test)):
        names = CIFAR10.splits[split]
        # Equal numbers of each class, as far as possible, in random order.
        labels = (permutation(seed, f"sample/{split}/labels", 0, count) % len(class_names.SAMPLE)).astype(np.uint8)
        for number, (name, images) in enumerate(zip(names, np.array_split(np.arange(count), len(names)), strict=True)):
            title = f"{'training' if split == 'train' else 'testing'} batch {number + 1} of {len(names)}"
            yield name, _batch(title, seed, split, images, labels[images])
    yield CIFAR10.meta, _meta()


def _batch(
    title: str, seed: int, split: str, images: npt.NDArray[np.int64], labels: npt.NDArray[np.uint8]
) -> Iterator[bytes]:
    """Yield a pickled batch in pieces: ``{batch_label, labels, data, filenames}``."""
    yield b"\x80\x02}(" + _text("batch_label") + _text(title)
    yield _text("labels") + b"](" + b"".join(b"K" + bytes((label,)) for label in labels.tolist()) + b"e"
    yield _text("data") + _ARRAY_TYPE + _number(len(images)) + _number(_PIXELS) + _ARRAY_DTYPE
    yield b"T" + struct.pack("<i", len(images) * _PIXELS)
    for first in range(0, len(images), _CHUNK):
        chosen = slice(first, first + _CHUNK)
        yield draw(seed, split, images[chosen], labels[chosen]).tobytes()
    yield b"tb"
    names = (
        _text(f"{class_names.SAMPLE[label]}_s_{image:06d}.png")
        for label, image in zip(labels.tolist(), images.tolist(), strict=True)
    )
    yield _text("filenames") + _list(names) + b"u."


def _meta() -> Iterator[bytes]:
    """Yield the pickled file of class names."""
    yield b"\x80\x02}(" + _text("num_cases_per_batch") + _number(10_000)
    yield _text("label_names") + _list(map(_text, class_names.SAMPLE))
    yield _text("num_vis") + _number(_PIXELS) + b"u."


# numpy.core.multiarray._reconstruct(numpy.ndarray, (0,), "b"), then the array's state: version 1, the shape …
_ARRAY_TYPE = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01"
# … dtype("u1", 0, 1) with its own state, and row-major order; the pixels follow.
_ARRAY_DTYPE = b"\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"


def _text(text: str) -> bytes:
    """Encode text as pickle's opcode SHORT_BINSTRING: Python 2's str, below 256 letters."""
    return b"U" + bytes((len(text),)) + text.encode("ascii")


def _number(value: int) -> bytes:
    """Encode an int as pickle's opcode BININT: 4 bytes, little-endian."""
    return b"J" + struct.pack("<i", value)


def _list(items: Iterable[bytes]) -> bytes:
    return b"](" + b"".join(items) + b"e"
