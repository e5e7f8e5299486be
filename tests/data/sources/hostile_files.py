"""Hostile files for every reader: small valid sources, one of whose files is changed by chance."""

from __future__ import annotations

import functools
import gzip
import json
import random
import re
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from coco_files import CocoFiles, people_in
from drawn_images import as_folders, as_parquet, as_table, as_webdataset, drawn, encoded, images
from published import archive_of, write_cifar10_bins, write_cifar10_pickles, write_mnist

from podline.base import entry_points
from podline.base.errors import PodlineError
from podline.data.people.records import annotations_of
from podline.data.people.truth import truth_of
from podline.data.records import varint
from podline.data.sandbox import child, pool
from podline.data.sandbox.limits import ParseLimits, too_much_memory
from podline.data.sources.source import open_raw
from podline.data.tfrecord import framed
from podline.recipes import datasets


class Kind(NamedTuple):
    """A kind of file: what writes a valid source, the pattern of the file to damage, and what reads both."""

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
        if source.skeleton:
            for images in people_in(source).values():
                json.loads(truth_of(images, source.skeleton, "hostile").encode())
                annotations_of(images[:3], source.settings, source.skeleton)
        for record in source.quarantined:
            record.model_dump_json().encode()
        return source.notes()

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


def write_tfds(folder: Path, classes: str = "2", lengths: Sequence[str] = ("24",)) -> None:
    """As TensorFlow Datasets does, without its package: records of a feature that is an image, and a label."""
    features = {"image": {"image": {}}, "label": {"classLabel": {"numClasses": classes}}}
    split = {"name": "train", "shardLengths": lengths}
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


def _packed(folder: Path) -> None:
    archive_of(write_cifar10_pickles(folder / "cifar-10-batches-py"), folder / "a.tar.gz")


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
    "tfds features": Kind(write_tfds, "features.json", _IMAGES),
    "tfds info": Kind(write_tfds, "dataset_info.json", _IMAGES),
    "tfds records": Kind(write_tfds, "*.tfrecord*", _IMAGES),
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
    "keypoint table": Kind(_deeplabcut, "*.csv", _dataset("keypoints")),
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

    idle = True

    def ask(self, items: Sequence[Any], limits: ParseLimits, _factor: float) -> Iterator[Any]:
        guard: Any = child._guard
        for item in items:
            guard.begin(limits, "input")
            try:
                reply = child.VALUE, json.loads(json.dumps(self._parse(item)))
            except Exception as error:
                reply = child._refused(error)
            guard.end()
            yield too_much_memory(limits, "") if reply[0] == child.MEMORY else reply

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
    pool._Child = _Here

    def run(request: tuple[str, int]) -> str:
        name, number = request
        folder, file, seed, _ = _source(name)
        file.write_bytes(mutated(seed, file.suffix[1:], f"{name}/{number}"))
        try:
            return _outcome(KINDS[name], folder, file)
        finally:
            shutil.rmtree(folder.parent / "work", ignore_errors=True)

    return run


_LARGEST = 10_000_000
_LARGE_SHARE = 0.01  # of the inputs are blown up to megabytes


# To the whole file.
_DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda _data: b"",
    lambda data: data[: len(data) // 2],
    lambda data: bytes(len(data)),
    lambda data: data * 2,
    lambda data: data + b"[" * 5_000_000,
    lambda _data: b"[" + b"[]," * 2_000_000 + b"[]]",
    lambda _data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    lambda _data: gzip.compress(bytes(200_000_000), 1),
    lambda data: re.sub(rb"[0-9]+", b"9" * 30, data),
]
_NUMBERS = [0, 1, 2, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63]
_VALUES: list[Any] = [
    None, True, False, 0, 1, 2, -1, 0.5, 1e308, -1e308, float("nan"), float("inf"), 2**31, 2**53, 2**62, 2**63,
    2**64, 10**400, -(10**4000),
    "", "a", "\ud800", "\udcff.jpg", "\0", "..", "../x", "a/b", "a\nb", "\x1b[2J", "a" * 255, "ü" * 200, "x" * 5000,
    "000000000003.jpg", "oooooooo", "0",
    [], {}, [[]], [0], [1, 2, 3, 4, 5, 6], [[1, 2, 3, 4, 5, 6]], [[-1e12, 1e12, 3, 4, 5, 1e300]],
    {"size": [32, 48], "counts": "0"}, {"size": [32, 48], "counts": [1536]}, {"size": [], "counts": []},
    {"counts": [2**70, -(2**70)], "size": [32, 48]}, {"size": [32, 48], "counts": "P" * 9 + "0" * 9},
]  # fmt: skip
# What formats are made of.
_WORDS = [
    *(bytes([code]) for code in b'[]{},:"-\n'), b"\0" * 4, b"\xff" * 8, b"../", b"1e999", b"NaN", b"9" * 5000,
    b"[" * 3000, b"\0" * 512, b"ustar\x0000", b"L", b"S", b"17 path=data_b\n", b"20 GNU.sparse.map=0\n",
    b"\x80" + b"\xff" * 11, b"PK\1\2", b"PK\3\4", b"PK\5\6", b"\1\0\x10\0" + b"\xff" * 16,
    b'"\\ud800"', b'"counts":', b'"id":', b'"images":[',
    *(b"\xff" + bytes([code]) for code in b"\0\xc0\xc2\xc4\xd0\xd8\xd9\xda\xdb\xdd\xe1"),
]  # fmt: skip


def mutated(seed: bytes, ending: str, name: str) -> bytes:
    """Change a valid file at random, seeded by a name: all of it, values of a document, or bytes, also under gzip."""
    chance = random.Random(f"18/{name}")
    if chance.random() < 0.1:
        return chance.choice(_DAMAGES)(seed)
    if ending == "json" and chance.random() < 0.6:
        return _document_mutated(seed, chance)
    if seed.startswith(b"\x1f\x8b") and chance.random() < 0.7:
        return gzip.compress(_summed(_bytes_mutated(gzip.decompress(seed), chance)), 1)
    return _bytes_mutated(seed, chance)


def _bytes_mutated(seed: bytes, chance: random.Random) -> bytes:
    """Change one to eight places, half of them at a word of a format."""
    made = bytearray(seed)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        near = min(len(made), 400)  # most bytes between are pixels
        start = chance.choice(
            (chance.randint(0, len(made)), chance.randint(0, near), len(made) - chance.randint(0, near))
        )
        known = made.find(chance.choice(_WORDS), chance.randint(0, len(made)))
        if known >= 0 and chance.random() < 0.5:
            start = known + chance.choice((0, 0, chance.randrange(48)))
        size, order = chance.choice((1, 2, 4, 8)), chance.choice(("little", "big"))
        number = (chance.choice(_NUMBERS) + chance.choice((-1, 0, 1, len(made)))) % (1 << 8 * size)
        piece = bytes(made[start : start + chance.choice((1, 10, 200))]) * chance.choice((1, 2, 100))
        inserted = chance.choice((b"", piece, chance.choice(_WORDS), chance.randbytes(1), number.to_bytes(size, order)))
        end = start + chance.choice((0, size, len(inserted), 100, len(made)))
        made[start:end] = inserted * (100_000 if chance.random() < _LARGE_SHARE else 1)
    return bytes(made[:_LARGEST])


def _document_mutated(content: bytes, chance: random.Random) -> bytes:
    """Replace, remove or repeat one to three values, some of them very often."""
    document = json.loads(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        holder, key = chance.choice(list(_places(document)))
        how = chance.random()
        if how < 0.6:
            holder[key] = json.loads(json.dumps(chance.choice(_VALUES)))
        elif how < 0.75:
            del holder[key]
        elif isinstance(holder, list):
            times = chance.choice((1, 2, 50)) if chance.random() > _LARGE_SHARE else chance.choice((3_000, 100_000))
            size = len(json.dumps(holder[key]))
            holder[key:key] = [holder[key]] * min(times, _LARGEST // (4 * size))
        else:
            holder[chance.choice(("id", "image_id", "extra", "counts"))] = holder[key]
        if not isinstance(document, dict | list) or not document:
            break
    return json.dumps(document).encode()[:_LARGEST]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every list and object in a value with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _summed(tar: bytes) -> bytes:
    """Make the sums of a tar's headers right again, or most changes would end there."""
    made = bytearray(tar)
    for start in range(0, min(len(made), 100_000) - 511, 512):
        if made[start + 257 : start + 262] == b"ustar":
            made[start + 148 : start + 156] = b" " * 8
            made[start + 148 : start + 156] = b"%06o\0 " % sum(made[start : start + 512])
    return bytes(made)
