"""Small images of all sorts, drawn, and sources of them in every layout."""

from __future__ import annotations

import functools
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import ExifTags, Image

from podline.data.images.arrow_file import TEXT
from podline.data.images.image_table import ImageTable, write_columns
from podline.data.images.opening import open_images
from podline.data.images.settings import ClassesSettings
from podline.data.sources.source import Source
from podline.recipes import datasets

KINDS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
CLASSES = ("cat", "日本 dog", "Åse")


@functools.lru_cache(4096)
def drawn(number: int, size: tuple[int, int] = (24, 20)) -> npt.NDArray[np.uint8]:
    """Pixels (height, width, 3) that no other number has."""
    rng = np.random.default_rng(number)
    small = Image.fromarray(rng.integers(0, 256, (5, 6, 3), np.uint8))
    pixels = np.asarray(small.resize((size[1], size[0]), Image.Resampling.BICUBIC))
    pixels.flags.writeable = False  # the next one who asks gets the same
    return pixels


def encoded(pixels: npt.NDArray[np.uint8], kind: str = "PNG", orientation: int = 1) -> bytes:
    return _encoded(pixels.tobytes(), pixels.shape, kind, orientation)


@functools.lru_cache(4096)
def _encoded(data: bytes, shape: tuple[int, ...], kind: str, orientation: int) -> bytes:
    stream, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.fromarray(np.frombuffer(data, np.uint8).reshape(shape)).save(
        stream, kind, **({"exif": exif} if orientation != 1 else {})
    )
    return stream.getvalue()


def images(count: int = 60) -> dict[str, dict[str, bytes]]:
    """Class → name → file, of every kind and of several sizes; one is turned."""
    found: dict[str, dict[str, bytes]] = {name: {} for name in CLASSES}
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        size = (16 + number % 40, 60 - number % 37)
        data = encoded(drawn(number, size), kind, 6 if number == 1 else 1)
        found[CLASSES[number % len(CLASSES)]][f"{number:03}.{kind.lower()}"] = data
    return found


Images = Mapping[str, Mapping[str, bytes]]


def as_folders(folder: Path, classes: Images) -> Path:
    """``<class>/<name>``."""
    for name, files in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file, data in files.items():
            (folder / name / file).write_bytes(data)
    return folder


def opened(folder: Path, **settings: Any) -> Source:
    """Images 16 pixels large, out of a source; the cache is beside it."""
    settings = {"side": 16, **settings}
    return open_images(datasets.find("images"), str(folder), ClassesSettings(**settings), folder.parent / "work")


class Row(NamedTuple):
    """An image in a table."""

    key: str
    label: str | None
    split: str
    group: str
    row: int
    identity: bytes
    pixels: bytes
    reason: str = ""


def table_of(folder: Path, rows: Iterable[Row]) -> ImageTable:
    """Images as columns in a file, in parts of seven."""
    path, stream = folder / "images.arrow", iter(rows)

    def part(some: list[Row]) -> dict[str, Any]:
        columns: dict[str, Any] = dict(zip(Row._fields, zip(*some, strict=True), strict=True))
        for name in ("key", "label", "split", "group", "reason"):
            texts = [None if text is None else text.encode(errors="surrogatepass") for text in columns[name]]
            columns[name] = pa.array(texts, TEXT)
        columns |= {name: pa.array(columns[name], pa.binary(16)) for name in ("identity", "pixels")}
        return {**columns, "row": pa.array(columns["row"]), "bytes": 10, "width": 4, "height": 4}

    write_columns(path, map(part, iter(lambda: list(islice(stream, 7)), [])))
    return ImageTable(path)


def reasons(source: Source) -> dict[str, str]:
    return {record.record: record.reason for record in source.quarantined}


def records(source: Source) -> list[tuple[str, str, bytes]]:
    """(split, class, pixels), in order."""
    return [
        (split.name, source.class_names[label], image.tobytes())
        for split in source.splits
        for found in [split.read(np.arange(len(split)))]
        for image, label in zip(found["image"], found["label"], strict=True)
    ]


def rows_of(classes: Images) -> list[tuple[str, str, bytes]]:
    """(name, class, file), in the order of names."""
    return sorted((file, name, data) for name, files in classes.items() for file, data in files.items())


def as_table(folder: Path, classes: Images, kind: str = "csv", **columns: Sequence[Any]) -> Path:
    """A table beside a folder of all images."""
    rows = rows_of(classes)
    (folder / "all").mkdir(parents=True)
    for file, _, data in rows:
        (folder / "all" / file).write_bytes(data)
    table = {"file_name": [f"all/{row[0]}" for row in rows], "label": [row[1] for row in rows], **columns}
    path = folder / f"labels.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table(table), path)
    elif kind == "jsonl":
        lines = [json.dumps(dict(zip(table, row, strict=True))) for row in zip(*table.values(), strict=True)]
        path.write_text("\n".join(lines) + "\n")
    else:
        mark = "\t" if kind == "tsv" else ","
        path.write_text(
            "\n".join(mark.join(map(str, row)) for row in [tuple(table), *zip(*table.values(), strict=True)])
        )
    return folder


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    """A tar of files, gzipped if its name says so; returns its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path.parent


def as_webdataset(folder: Path, classes: Images, name: str = "part-000.tar", as_json: bool = False) -> Path:
    """A tar of samples."""
    members = {}
    for file, label, data in rows_of(classes):
        key, _, ending = file.partition(".")
        said = json.dumps({"label": label}).encode() if as_json else label.encode()
        members |= {f"{key}.{ending}": data, f"{key}.{'json' if as_json else 'cls'}": said}
    return write_tar(folder / name, members)


def as_parquet(folder: Path, classes: Images, name: str = "part-00000-of-00001.parquet", rows: int = 7) -> Path:
    """Parquet as Hugging Face writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(classes)
    found = rows_of(classes)
    features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
    schema = pa.schema(
        [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    columns = {
        "image": [{"bytes": data, "path": file} for file, _, data in found],
        "label": [names.index(label) for _, label, _ in found],
    }
    pq.write_table(pa.table(columns, schema=schema), folder / name, row_group_size=rows)
    return folder


def as_prepared(folder: Path, classes: Images, sequential: bool = False, **splits: Images) -> Path:
    """A data set that TensorFlow Datasets has prepared; the images are its training split."""
    import tensorflow_datasets as tfds  # noqa: PLC0415 (it takes seconds)

    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(),
            "file_name": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=list(classes)),
        }
    )
    identity = tfds.core.DatasetIdentity(
        name="drawn", data_dir=str(folder / "drawn/1.0.0"), module_name="drawn", version=tfds.core.Version("1.0.0")
    )
    (folder / "drawn/1.0.0").mkdir(parents=True)
    info = tfds.core.DatasetInfo(builder=identity, features=features)
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=40, overwrite=True)
    given = {"train": classes, **splits}
    writer.initialize_splits(list(given))
    files = folder / "files"
    files.mkdir(parents=True)
    for split, found in given.items():
        for number, (file, label, data) in enumerate(rows_of(found)):
            (files / f"{split}{number}").write_bytes(data)
            example = {"image": str(files / f"{split}{number}"), "file_name": file, "label": label}
            writer.add_examples({split: [example]})
    writer.close_all()
    if not sequential:
        _named_as_builders_do(folder / "drawn/1.0.0")
    return folder / "drawn"


def _named_as_builders_do(folder: Path) -> None:
    """Names of shards with how many there are, which a writer of one after the other does not know."""
    said = json.loads((folder / "dataset_info.json").read_text())
    for split in said["splits"]:
        del split["filepathTemplate"]
        shards = sorted(folder.glob(f"drawn-{split['name']}.tfrecord-*"))
        for shard in shards:
            shard.rename(f"{shard}-of-{len(shards):05}")
    (folder / "dataset_info.json").write_text(json.dumps(said))
