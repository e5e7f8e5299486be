"""Hostile files for every reader: small valid sources, one of whose files is damaged; see mutation.py."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pandas as pd
from coco_files import CocoFiles
from drawn_images import as_folders, as_parquet, as_table, as_webdataset, drawn, encoded, images
from mutation import mutated
from published import archive_of, write_cifar10_bins, write_cifar10_pickles, write_mnist

from podline import entry_points, sandbox
from podline.data.records import varint
from podline.data.sources.coco import CocoSource
from podline.data.sources.coco_image import CocoImage
from podline.data.sources.coco_records import annotations_of
from podline.data.sources.coco_truth import truth_of
from podline.data.sources.source import open_raw
from podline.data.tfrecord import framed
from podline.errors import PodlineError
from podline.kinds.pose.coco_results import read_truth
from podline.models.weights_files import read_weights
from podline.recipes import datasets
from podline.sandbox import Limits


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        write: a valid source into a folder.
        file: a pattern of the file in it that is to be damaged.
        read: the source, by its folder and that file.
    """

    write: Callable[[Path], object]
    file: str
    read: Callable[[Path, Path], object]


def prepared(kind: Kind, folder: Path) -> Path:
    """Write a source; return the file that is to be damaged."""
    folder.mkdir()
    kind.write(folder)
    return next(path for path in sorted(folder.rglob("*")) if path.match(kind.file))


def _dataset(name: str) -> Callable[[Path, Path], object]:
    """Do all that a conversion does but for writing."""

    def read(folder: Path, _file: Path) -> object:
        dataset = datasets.find(name)
        settings = {"images": {"side": 8}, "coco": {"side": 64}, "keypoints": {"side": 64}}.get(name, {})
        source = open_raw(dataset, str(folder), dataset.settings_of(settings), folder.parent / "work")
        if isinstance(source, CocoSource):
            for images in filter(None, source.splits.values()):
                json.loads(truth_of(images, source.skeleton, "hostile").encode())
                annotations_of([CocoImage.from_json(image.to_json()) for image in images[:3]], 64, 2, source.skeleton)
        for record in source.quarantined:
            record.model_dump_json().encode()
        return source.looked_at()

    return read


def _archive(folder: Path, file: Path) -> object:
    return _dataset("cifar10")(file, folder)


def _in_folders(kind: str, folder: Path) -> None:
    as_folders(
        folder, {name: {f"{n}.png": encoded(drawn(7 * n + m)) for n in range(12)} for m, name in enumerate("ab")}
    )
    (folder / "a" / f"hostile.{kind.lower()}").write_bytes(encoded(drawn(99), kind))


def _deeplabcut(folder: Path) -> None:
    frames = folder / "labeled-data" / "video"
    frames.mkdir(parents=True)
    names = [f"img{number:03}.png" for number in range(6)]
    for number, name in enumerate(names):
        (frames / name).write_bytes(encoded(drawn(number, (60, 80))))
    levels = [["me"], ["nose", "tail"], ["x", "y"]]
    columns = pd.MultiIndex.from_product(levels, names=["scorer", "bodyparts", "coords"])
    table = pd.DataFrame(np.arange(24.0).reshape(6, 4), [f"labeled-data/video/{name}" for name in names], columns)
    table.to_csv(frames / "CollectedData_me.csv")
    (folder / "config.yaml").write_text("bodyparts: [nose, tail]\nskeleton: [[nose, tail]]\n")


def _tfds(folder: Path) -> None:
    """As TensorFlow Datasets does, without its package: records of a feature that is an image, and a label."""
    features = {"image": {"image": {}}, "label": {"classLabel": {"numClasses": "2"}}}
    split = {"name": "train", "shardLengths": ["24"]}
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": features}}))
    (folder / "dataset_info.json").write_text(json.dumps({"name": "x", "splits": [split]}))
    (folder / "x-train.tfrecord-00000-of-00001").write_bytes(b"".join(map(framed, map(_example, range(24)))))


def _example(number: int) -> bytes:
    image = _field(1, _field(1, encoded(drawn(number))))
    label = _field(3, _field(1, bytes([number % 2])))
    values = (_field(1, name) + _field(2, value) for name, value in ((b"image", image), (b"label", label)))
    return _field(1, b"".join(_field(1, value) for value in values))


def _field(number: int, content: bytes) -> bytes:
    """A field of a message of protocol buffers that holds bytes or a message."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def _h5(folder: Path) -> Path:
    with h5py.File(folder / "model.weights.h5", "w") as file:
        group = file.create_group("layers/dense/vars")
        group.attrs["name"] = "dense"
        group.create_dataset("0", data=np.ones((30, 40), np.float32), compression="gzip")
    return folder / "model.weights.h5"


def _keras(folder: Path) -> None:
    with zipfile.ZipFile(folder / "model.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(_h5(folder), "model.weights.h5")
        archive.writestr("config.json", "{}")


def _packed(folder: Path) -> None:
    archive_of(write_cifar10_pickles(folder / "cifar-10-batches-py"), folder / "a.tar.gz")


def _weights(write: Callable[[Path], object], file: str) -> Kind:
    return Kind(write, file, lambda _folder, path: read_weights(path))


_SAME = images(12)
_IMAGES, _CIFAR, _MNIST, _COCO = map(_dataset, ("images", "cifar10", "mnist", "coco"))
_IDX, _FILES, _ZIPS = partial(write_mnist, packed=False), CocoFiles().write, partial(CocoFiles().write, zipped=True)
_PEOPLE = "person_keypoints_train2017.json"
KINDS: dict[str, Kind] = {
    **{
        name: Kind(partial(_in_folders, name), "hostile.*", _IMAGES)
        for name in ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP")
    },
    **{
        name: Kind(lambda folder, name=name: as_table(folder, _SAME, name), f"labels.{name}", _IMAGES)
        for name in ("csv", "jsonl", "parquet")
    },
    "parquet of images": Kind(lambda folder: as_parquet(folder, _SAME), "*.parquet", _IMAGES),
    "webdataset": Kind(lambda folder: as_webdataset(folder, _SAME), "*.tar", _IMAGES),
    "packed webdataset": Kind(lambda folder: as_webdataset(folder, _SAME, "part.tar.gz"), "*.tar.gz", _IMAGES),
    "tfds features": Kind(_tfds, "features.json", _IMAGES),
    "tfds info": Kind(_tfds, "dataset_info.json", _IMAGES),
    "tfds records": Kind(_tfds, "*.tfrecord*", _IMAGES),
    "pickle": Kind(write_cifar10_pickles, "data_batch_2", _CIFAR),
    "pickled names": Kind(write_cifar10_pickles, "batches.meta", _CIFAR),
    "rows": Kind(write_cifar10_bins, "data_batch_2.bin", _CIFAR),
    "names": Kind(write_cifar10_bins, "batches.meta.txt", _CIFAR),
    "tar.gz": Kind(_packed, "a.tar.gz", _archive),
    "gzipped idx": Kind(write_mnist, "train-images*", _MNIST),
    "idx images": Kind(_IDX, "train-images*", _MNIST),
    "idx labels": Kind(_IDX, "train-labels*", _MNIST),
    "coco annotations": Kind(_FILES, _PEOPLE, _COCO),
    "coco image": Kind(_FILES, "000000000003.jpg", _COCO),
    "zipped annotations": Kind(_ZIPS, "annotations_trainval2017.zip", _COCO),
    "zipped images": Kind(_ZIPS, "train2017.zip", _COCO),
    "truth": Kind(_FILES, _PEOPLE, lambda _folder, file: read_truth(file)),
    "keypoint table": Kind(_deeplabcut, "*.csv", _dataset("keypoints")),
    "npz": _weights(lambda folder: np.savez_compressed(folder / "w.npz", kernel=np.ones((30, 40))), "w.npz"),
    "h5": _weights(_h5, "*.h5"),
    "keras": _weights(_keras, "*.keras"),
}


def _outcome(kind: Kind, folder: Path, file: Path) -> str:
    """Return what was wrong with what came of a file: neither data nor an error in one line; empty if nothing was."""
    try:
        kind.read(folder, file)
    except PodlineError as error:
        printed = str(error).encode(errors="replace").decode()
        fine = printed == str(error) and "\n" not in printed
        return "" if fine else f"an error that is no line: {printed[:300]!r}"
    except Exception as error:
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        return f"{type(error).__name__}: {str(error)[:200]} at {' '.join(places[-3:])}"
    return ""


class _Here:
    """Stands for the child of a sandbox: calls its function in this process, which is one itself."""

    def __init__(self, maker: str, arguments: Sequence[object]) -> None:
        self._parse: Callable[[Any], Any] = entry_points.load(maker)(*arguments)

    def ask(self, items: Sequence[Any], limits: Sequence[Limits], _factor: float) -> list[Any]:
        guard: Any = sandbox._guard
        replies = []
        for item, limit in zip(items, limits, strict=True):
            guard.begin(limit, "input")
            guard.what = ""
            replies.append(sandbox._guarded(guard, partial(self._parse, item)))
            guard.end()
        return json.loads(json.dumps(replies))

    def end(self) -> None:
        """There is nothing to end."""


@functools.cache
def _source(name: str) -> tuple[Path, Path, bytes, object]:
    """A source, the file of it that is changed, its valid content, and what keeps the folder."""
    kept = tempfile.TemporaryDirectory(prefix="podline-mutated-")
    folder = Path(kept.name) / "source"
    file = prepared(KINDS[name], folder)
    return folder, file, file.read_bytes(), kept


def runner() -> Callable[[tuple[str, int]], str]:
    """Return what reads input ``number`` of a kind and says what was wrong with it; runs in a sandbox."""
    sandbox._Child = _Here

    def run(request: tuple[str, int]) -> str:
        name, number = request
        folder, file, seed, _ = _source(name)
        file.write_bytes(mutated(seed, file.suffix[1:], f"{name}/{number}"))
        try:
            return _outcome(KINDS[name], folder, file)
        finally:
            shutil.rmtree(folder.parent / "work", ignore_errors=True)

    return run
