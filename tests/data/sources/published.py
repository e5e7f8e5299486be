"""Tiny data sets in the official layouts, written independently of the code that reads them."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.sources.source import Source

CIFAR10_BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MNIST_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def noise(name: str, rows: int, size: int = 3072) -> npt.NDArray[np.uint8]:
    """Rows of random bytes, other ones for every name."""
    return np.random.default_rng(list(name.encode())).integers(0, 256, (rows, size), np.uint8)


def labels_of(name: str, rows: int, classes: int = 10) -> list[int]:
    return np.random.default_rng([classes, *name.encode()]).integers(0, classes, rows).tolist()


def python2(value: Any) -> bytes:
    """A value as Python 2's cPickle wrote it with protocol 2; every str is a byte string."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(key) + _python2(item) for key, item in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, int):
        return b"K" + bytes((value,)) if 0 <= value < 256 else b"J" + struct.pack("<i", value)
    if isinstance(value, str):
        return b"U" + bytes((len(value),)) + value.encode()
    shape = b"(" + b"".join(map(_python2, value.shape)) + b"t"
    dtype = b"cnumpy\ndtype\nU\x02" + value.dtype.str[1:].encode() + b"K\x00K\x01\x87R"
    dtype += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    content = value.tobytes()
    return b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R" + (
        b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(content)) + content + b"tb"
    )


def cifar10_batch(name: str, rows: int) -> dict[str, Any]:
    return {"batch_label": name, "labels": labels_of(name, rows), "data": noise(name, rows)}


def cifar100_batch(name: str, rows: int) -> dict[str, Any]:
    return {
        "filenames": [f"{name}_{row}.png" for row in range(rows)],
        "fine_labels": labels_of(name, rows, 100),
        "coarse_labels": labels_of(name, rows, 20),
        "data": noise(name, rows),
    }


def write_cifar10_pickles(folder: Path, rows: int = 4, names: Sequence[str] = CIFAR10_NAMES) -> Path:
    """The python layout; batch k has ``rows + k`` rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(CIFAR10_BATCHES):
        (folder / name).write_bytes(python2(cifar10_batch(name, rows + number)))
    (folder / "batches.meta").write_bytes(python2({"label_names": list(names), "num_vis": 3072}))
    return folder


def write_cifar10_bins(folder: Path, rows: int = 4) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(CIFAR10_BATCHES):
        count = rows + number
        table = np.column_stack([np.array(labels_of(name, count), np.uint8), noise(name, count)])
        (folder / f"{name}.bin").write_bytes(table.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_NAMES) + "\n\n")
    return folder


def write_cifar100_pickles(folder: Path, rows: int = 4) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "test"):
        (folder / name).write_bytes(python2(cifar100_batch(name, rows)))
    return folder


def write_cifar100_bins(folder: Path, rows: int = 4) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "test"):
        columns = [np.array(labels_of(name, rows, classes), np.uint8) for classes in (20, 100)]
        (folder / f"{name}.bin").write_bytes(np.column_stack([*columns, noise(name, rows)]).tobytes())
    return folder


def idx(array: npt.NDArray[np.uint8]) -> bytes:
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def mnist_files(train: int = 7, test: int = 5) -> dict[str, bytes]:
    """The four files by their official names, not compressed."""
    content = {}
    for split, count in (("train", train), ("t10k", test)):
        content[f"{split}-images-idx3-ubyte"] = idx(noise(split, count, 784).reshape(count, 28, 28))
        content[f"{split}-labels-idx1-ubyte"] = idx(np.array(labels_of(split, count), np.uint8))
    return content


def write_mnist(folder: Path, *, packed: bool = True, content: Mapping[str, bytes] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (content or mnist_files()).items():
        (folder / f"{name}{'.gz' * packed}").write_bytes(gzip.compress(data, mtime=0) if packed else data)
    return folder


def write_archive(path: Path, members: Mapping[str, bytes] | Sequence[tuple[tarfile.TarInfo, bytes]]) -> Path:
    """A tar.gz of plain files, or of members with headers of their own."""
    pairs = members
    if isinstance(members, Mapping):
        pairs = []
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            pairs.append((info, data))
    with tarfile.open(path, "w:gz") as archive:
        for info, data in pairs:
            archive.addfile(info, io.BytesIO(data))
    return path


def archive_of(folder: Path, path: Path) -> Path:
    """A folder as the official archives have it: with its own name in front."""
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    return path


def names_of(source: Source, split: str) -> list[str]:
    """The names of a split's records in their order."""
    return source.images.keys(np.flatnonzero(source.images.kept(split)))


def same_content(one: Source, other: Source) -> None:
    """Two sources agree in all but the paths of their files."""
    assert (one.dataset, one.class_names, one.files) == (other.dataset, other.class_names, other.files)
    for first, second in zip(one.splits, other.splits, strict=True):
        assert names_of(one, first.name) == names_of(other, second.name)
        for key, column in first.read(np.arange(len(first))[::-1]).items():
            np.testing.assert_array_equal(column, second.read(np.arange(len(second))[::-1])[key])
