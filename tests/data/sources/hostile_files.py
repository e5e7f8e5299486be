"""Hostile files for every reader: small valid sources, one of whose files is damaged in every way of a list."""

from __future__ import annotations

import functools
import gzip
import io
import json
import random
import re
import resource
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pandas as pd
from coco_files import CocoFiles
from drawn_images import as_folders, as_parquet, as_table, as_webdataset, drawn, encoded, images
from published import archive_of, write_cifar10_bins, write_cifar10_pickles, write_mnist

from podline.data.picture_sandbox import PictureSandboxes, read_picture_file
from podline.data.records import varint
from podline.data.sources.coco import CocoSource
from podline.data.sources.coco_image import CocoImage
from podline.data.sources.coco_records import annotations_of
from podline.data.sources.coco_truth import truth_of
from podline.data.sources.source import open_raw
from podline.data.tfrecord import header, masked_crc
from podline.errors import PodlineError
from podline.kinds.pose.coco_results import read_truth
from podline.models.weights_files import read_weights
from podline.recipes import datasets

MAX_SECONDS = 3
MAX_BYTES = 300_000_000
_STARTING = 1.2, 170_000_000  # seconds and bytes that children take to start, with all that they import


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        write: a valid source into a folder; returns the file that is to be damaged.
        read: the source.
    """

    write: Callable[[Path], Path]
    read: Callable[[Path, Path], object]


def _dataset(name: str) -> Callable[[Path, Path], object]:
    """Do all that a conversion does but for writing."""

    def read(folder: Path, _file: Path) -> object:
        dataset = datasets.find(name)
        settings = {"images": {"side": 8}, "coco": {"side": 64}, "keypoints": {"side": 64}}.get(name, {})
        source = open_raw(dataset, str(folder), dataset.settings_of(settings), folder.parent / "work")
        if isinstance(source, CocoSource):
            for images in source.splits.values():
                json.loads(truth_of(images, source.skeleton, "hostile").encode())
                annotations_of([CocoImage.from_json(image.to_json()) for image in images[:3]], 64, 2, source.skeleton)
        for record in source.quarantined:
            record.model_dump_json().encode()
        return source.looked_at()

    return read


def _truth(_folder: Path, file: Path) -> object:
    return read_truth(file)


def _archive(folder: Path, file: Path) -> object:
    return _dataset("cifar10")(file, folder)


def _picture(_folder: Path, file: Path) -> object:
    with PictureSandboxes() as sandboxes:
        return sandboxes.decode([read_picture_file(file)])


def _weights(_folder: Path, file: Path) -> object:
    return read_weights(file)


def _in_folders(kind: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        as_folders(
            folder, {name: {f"{n}.png": encoded(drawn(7 * n + m)) for n in range(12)} for m, name in enumerate("ab")}
        )
        file = folder / "a" / f"hostile.{kind.lower()}"
        file.write_bytes(encoded(drawn(99), kind))
        return file

    return write


def _written(write: Callable[..., Path], name: str, *given: object) -> Callable[[Path], Path]:
    def written(folder: Path) -> Path:
        write(folder, *given)
        return next(path for path in sorted(folder.rglob("*")) if path.match(name))

    return written


def _coco(folder: Path, zipped: bool) -> Path:
    return CocoFiles().write(folder, zipped=zipped)


def _deeplabcut(folder: Path, kind: str) -> Path:
    frames = folder / "labeled-data" / "video"
    frames.mkdir(parents=True)
    names = [f"img{number:03}.png" for number in range(6)]
    for number, name in enumerate(names):
        (frames / name).write_bytes(encoded(drawn(number, (60, 80))))
    columns = pd.MultiIndex.from_product(
        [["me"], ["nose", "tail"], ["x", "y"]], names=["scorer", "bodyparts", "coords"]
    )
    table = pd.DataFrame(np.arange(24.0).reshape(6, 4), [f"labeled-data/video/{name}" for name in names], columns)
    if kind == "csv":
        table.to_csv(frames / "CollectedData_me.csv")
    (folder / "config.yaml").write_text("bodyparts: [nose, tail]\nskeleton: [[nose, tail]]\n")
    return folder


def _prepared(folder: Path) -> Path:
    """As TensorFlow Datasets does, without its package: records of a feature that is an image, and a label."""
    (folder / "features.json").write_text(
        json.dumps(
            {"featuresDict": {"features": {"image": {"image": {}}, "label": {"classLabel": {"numClasses": "2"}}}}}
        )
    )
    (folder / "dataset_info.json").write_text(
        json.dumps({"name": "x", "splits": [{"name": "train", "shardLengths": ["24"]}]})
    )
    with (folder / "x-train.tfrecord-00000-of-00001").open("wb") as stream:
        for number in range(24):
            image = _field(1, _field(1, encoded(drawn(number))))
            label = _field(3, _field(1, bytes([number % 2])))
            values = [
                _field(1, _field(1, name) + _field(2, value)) for name, value in ((b"image", image), (b"label", label))
            ]
            example = _field(1, b"".join(values))
            stream.write(header(len(example)) + example + masked_crc(example))
    return folder


def _field(number: int, content: bytes) -> bytes:
    """A field of a message of protocol buffers that holds bytes or a message."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def _npz(folder: Path) -> Path:
    arrays: dict[str, Any] = {"dense/kernel": np.ones((30, 40), np.float32)}
    np.savez_compressed(folder / "weights.npz", **arrays)
    return folder


def _h5(folder: Path) -> Path:
    with h5py.File(folder / "model.weights.h5", "w") as file:
        group = file.create_group("layers/dense/vars")
        group.attrs["name"] = "dense"
        group.create_dataset("0", data=np.ones((30, 40), np.float32), compression="gzip")
    return folder


def _keras(folder: Path) -> Path:
    _h5(folder)
    with zipfile.ZipFile(folder / "model.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "model.weights.h5", "model.weights.h5")
        archive.writestr("config.json", "{}")
    return folder


def _packed(folder: Path) -> Path:
    archive_of(write_cifar10_pickles(folder / "cifar-10-batches-py"), folder / "a.tar.gz")
    return folder


def _table(kind: str) -> Callable[[Path], Path]:
    return _written(lambda folder: as_table(folder, images(12), kind), f"labels.{kind}")


_SOURCE = {"images": _dataset("images"), "cifar": _dataset("cifar10"), "coco": _dataset("coco")}
KINDS: dict[str, Kind] = {
    **{name: Kind(_in_folders(name), _SOURCE["images"]) for name in ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP")},
    **{f"asked {name}": Kind(_in_folders(name), _picture) for name in ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP")},
    **{name: Kind(_table(name), _SOURCE["images"]) for name in ("csv", "jsonl", "parquet")},
    "parquet of images": Kind(_written(as_parquet, "*.parquet", images(12)), _SOURCE["images"]),
    "webdataset": Kind(_written(as_webdataset, "*.tar", images(12)), _SOURCE["images"]),
    "packed webdataset": Kind(_written(as_webdataset, "*.tar.gz", images(12), "part.tar.gz"), _SOURCE["images"]),
    "tfds features": Kind(_written(_prepared, "features.json"), _SOURCE["images"]),
    "tfds info": Kind(_written(_prepared, "dataset_info.json"), _SOURCE["images"]),
    "tfds records": Kind(_written(_prepared, "*.tfrecord*"), _SOURCE["images"]),
    "pickle": Kind(_written(write_cifar10_pickles, "data_batch_2"), _SOURCE["cifar"]),
    "pickled names": Kind(_written(write_cifar10_pickles, "batches.meta"), _SOURCE["cifar"]),
    "rows": Kind(_written(write_cifar10_bins, "data_batch_2.bin"), _SOURCE["cifar"]),
    "names": Kind(_written(write_cifar10_bins, "batches.meta.txt"), _SOURCE["cifar"]),
    "tar.gz": Kind(_written(_packed, "a.tar.gz"), _archive),
    "gzipped idx": Kind(_written(write_mnist, "train-images*"), _dataset("mnist")),
    "idx images": Kind(_written(lambda folder: write_mnist(folder, packed=False), "train-images*"), _dataset("mnist")),
    "idx labels": Kind(_written(lambda folder: write_mnist(folder, packed=False), "train-labels*"), _dataset("mnist")),
    "coco annotations": Kind(_written(_coco, "person_keypoints_train2017.json", False), _SOURCE["coco"]),
    "coco image": Kind(_written(_coco, "000000000003.jpg", False), _SOURCE["coco"]),
    "zipped annotations": Kind(_written(_coco, "annotations_trainval2017.zip", True), _SOURCE["coco"]),
    "zipped images": Kind(_written(_coco, "train2017.zip", True), _SOURCE["coco"]),
    "truth": Kind(_written(_coco, "person_keypoints_train2017.json", False), _truth),
    "keypoint table": Kind(_written(_deeplabcut, "*.csv", "csv"), _dataset("keypoints")),
    "npz": Kind(_written(_npz, "*.npz"), _weights),
    "h5": Kind(_written(_h5, "*.h5"), _weights),
    "keras": Kind(_written(_keras, "*.keras"), _weights),
}


@functools.lru_cache
def _gzip_bomb() -> bytes:
    return gzip.compress(bytes(200_000_000), 1)


@functools.lru_cache
def _zip_bomb() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("model.weights.h5", "dense/kernel.npy", "annotations/person_keypoints_train2017.json"):
            archive.writestr(name, bytes(100_000_000))
    return stream.getvalue()


def _numbered(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :]


def _noise(data: bytes) -> bytes:
    return random.Random(0).randbytes(len(data))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _data: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "cut by a byte": lambda data: data[:-1],
    "zeros": lambda data: bytes(len(data)),
    "noise": _noise,
    "the start alone": lambda data: data[:24] + bytes(100_000),
    "twice": lambda data: data * 2,
    "followed by zeros": lambda data: data + bytes(5_000_000),
    "followed by brackets": lambda data: data + b"[" * 5_000_000,
    "brackets": lambda _data: b"[" * 5_000_000,
    "lists": lambda _data: b"[" + b"[]," * 2_000_000 + b"[]]",
    "one line": lambda _data: b"a," * 2_500_000,
    "a pointer of Git LFS": lambda _data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "a packed bomb": lambda _data: _gzip_bomb(),
    "a zipped bomb": lambda _data: _zip_bomb(),
    "code": lambda _data: b"cos\nsystem\n(S'touch /tmp/podline-was-here'\ntR.",
    "numbers of many digits": lambda data: re.sub(rb"[0-9]+", b"9" * 30, data),
    "half of the bytes": lambda data: data[::2],
    **{f"a large number at byte {place}": _numbered(place) for place in (0, 4, 8, 16, 24, 40, 100)},
    **{f"a large number {place} bytes before the end": _numbered(-place) for place in (8, 20, 40)},
}
CASES = [(kind, damage) for kind in KINDS for damage in DAMAGES]


def problem_of(kind: str, damage: str, folder: Path) -> str:
    """Read a hostile file; return what was wrong with what came of it, empty if nothing was."""
    source = folder / "source"
    source.mkdir()
    file = KINDS[kind].write(source)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    before, most, problem = _seconds(), _largest(), ""
    try:
        KINDS[kind].read(source, file)
    except PodlineError as error:
        if "\n" in str(error) or str(folder) not in str(error):
            problem = f"an error that is no line, or names no file: {str(error)[:300]!r}"
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:300]}"
    seconds = _seconds() - before - _STARTING[0]
    if not problem and seconds > MAX_SECONDS + 2 * file.stat().st_size / 5e6:
        problem = f"{seconds:.1f} s of CPU time"
    taken = _largest() - _STARTING[1] if _largest() > most else 0  # of all children so far
    return problem or (f"{taken / 1e6:,.0f} MB" if taken > MAX_BYTES else "")


def _largest() -> int:
    """Bytes of the largest child that has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
