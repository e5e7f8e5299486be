"""Data sets prepared by TensorFlow Datasets: TFRecords of encoded images, next to features.json.

TFDS 4 writes these files (``FeaturesDict.save_config``, the ``DatasetInfo`` proto as JSON); this module reads them
without TFDS. The listing reads each record, and keeps only the place of its image.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from pydantic import AliasPath, BaseModel, Field, NonNegativeInt

from podline.base.errors import SourceError
from podline.base.frozen import is_object
from podline.base.plurals import first_few, plural
from podline.data import bounds
from podline.data.images.items import SPLIT_NAMES, Item, Place
from podline.data.images.layout import Layout, opened
from podline.data.images.listing import Files, ListedFile
from podline.data.images.settings import ImagesSettings
from podline.data.rawfiles import reading
from podline.data.shown import printable
from podline.data.texts import cleaned
from podline.data.tfrecord import HEADER_BYTES, masked_crc

INFO, FEATURES = "dataset_info.json", "features.json"
_REMEDY = "prepare the data set again"
Value = TypeVar("Value")
Document = TypeVar("Document", bound=BaseModel)

# The fields of tf.train.Example that are read here; importing TensorFlow takes seconds.
_PROTO = """
name: "example.proto" syntax: "proto3"
message_type { name: "Bytes" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Integers" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: "Feature"
  field { name: "bytes" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".Bytes" }
  field { name: "integers" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".Integers" } }
message_type { name: "Entry"
  field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_BYTES }
  field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".Feature" } }
message_type { name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".Entry" } }
message_type { name: "Example"
  field { name: "features" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".Features" } }
"""
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto()))  # pyright: ignore[reportAttributeAccessIssue]
_Example: Any = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("Example"))
_NOTHING: Any = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("Feature"))()


class _Split(BaseModel):
    """A split in dataset_info.json, with the number of records in each shard."""

    name: str
    lengths: list[NonNegativeInt] = Field(alias="shardLengths")


class _Info(BaseModel):
    """The part of dataset_info.json that is read."""

    name: str = "?"
    version: str = ""
    format: str = Field(default="tfrecord", alias="fileFormat")
    splits: list[_Split] = []


class _Features(BaseModel):
    """The part of features.json that is read."""

    features: dict[str, dict[str, Any]] = Field(validation_alias=AliasPath("featuresDict", "features"))


class Shard(NamedTuple):
    """A TFRecord file of a split, with its number of records according to dataset_info.json."""

    file: ListedFile
    split: str
    records: int


@dataclass(frozen=True)
class Prepared(Layout):
    """The layout of data sets prepared by TFDS.

    Attributes:
        name: name and version of the data set in TFDS.
        shards: the TFRecord files, in order.
        image: name of the image feature.
        label: name of the label feature.
        classes: number of classes.
        class_names: names of the classes by label; empty if the classes have no names.
    """

    name: str
    shards: Sequence[Shard]
    image: str
    label: str
    classes: int
    class_names: tuple[str, ...]

    accepts = "a folder that TensorFlow Datasets has prepared"
    opens = (INFO,)
    exclusive = True  # version folders look like class folders

    @classmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return the data set that the files form, or None.

        Raises:
            SourceError: there are several data sets, a file is missing or unreadable, or not exactly one feature is an
                image and one a label, and no setting chooses.
        """
        folders: dict[str, dict[str, ListedFile]] = {file.folder: {} for file in files.ending(INFO)}
        for file in files.readable if folders else ():
            folders.get(file.folder, {})[file.name.rpartition("/")[2]] = file
        found = {folder: beside for folder, beside in folders.items() if beside.keys() >= {INFO, FEATURES}}
        if len(found) > 1:
            shown = first_few([folder or "." for folder in found], 3)
            raise SourceError(f"got {len(found)} prepared data sets ({shown}) vs one; give the folder of one version")
        return cls._opened(next(iter(found.values())), settings) if found else None

    @classmethod
    def _opened(cls, beside: Mapping[str, ListedFile], settings: ImagesSettings) -> Self:
        """Open a data set from its files, by name."""
        said = _said(beside[INFO], _Info)
        image, label, classes = _chosen(beside[FEATURES], settings)
        names = beside.get(f"{label}.labels.txt")
        shards = _shards(said, beside)
        read = [beside[INFO], beside[FEATURES], *([names] if names else []), *(shard.file for shard in shards)]
        named = _lines(names, classes) if names else ()
        return cls(read, f"{said.name} {said.version}".strip(), shards, image, label, classes, named)

    @property
    def words(self) -> str:
        """Describe the data set, its shards and features."""
        return f"TensorFlow Datasets, {self.name}, shards: {len(self.shards)}, features {self.image}, {self.label}"

    @property
    def splits(self) -> frozenset[str]:
        """Return the names of the shards' splits, in lower case, without those that Podline does not know."""
        return frozenset(shard.split for shard in self.shards) & SPLIT_NAMES

    def items(self) -> Iterator[Item]:
        """Yield an item for each record."""
        for shard in self.shards:
            for number, (start, record) in enumerate(_records(shard)):
                with reading(f"{shard.file.path}: record {number}", "a tf.train.Example", _REMEDY):
                    found = {entry.key: entry.value for entry in _Example.FromString(record).features.feature}
                image, label = (found.get(name.encode(), _NOTHING) for name in (self.image, self.label))
                data, (named, problem) = _only(image.bytes.value), self._label(_only(label.integers.value))
                place = Place(shard.file.path, start + record.find(data), len(data)) if data else b""
                problem = f"has no image in {self.image}" if data is None else problem
                yield Item(f"{shard.file.name}[{number}]", place, named, shard.split, reason=problem)

    def _label(self, number: int | None) -> tuple[str | None, str]:
        if number is None:
            return None, f"has no class in {self.label}"
        if not 0 <= number < self.classes:
            return None, f"has the label {number}, expected 0 to {self.classes - 1}"
        return self.class_names[number] if self.class_names else str(number), ""


def _said(file: ListedFile, model: type[Document]) -> Document:
    """Read and validate a JSON file of TFDS."""
    with opened(file, "JSON of TensorFlow Datasets", _REMEDY):
        return model.model_validate_json(Path(file.path).read_bytes())


def _lines(file: ListedFile, classes: int) -> tuple[str, ...]:
    with opened(file, "UTF-8", _REMEDY):
        names = tuple(map(cleaned, Path(file.path).read_text("utf-8").split("\n")))
    names = names[:-1] if names[-1] == "" else names
    if len(names) != classes:
        expected = plural(classes, "class", "classes")
        raise SourceError(f"{file.path} has {plural(len(names), 'line')} vs {expected} in {FEATURES}; {_REMEDY}")
    return names


def _chosen(file: ListedFile, settings: ImagesSettings) -> tuple[str, str, int]:
    """Return the names of the image and label features, and the number of classes.

    Raises:
        SourceError: the file cannot be read, a feature is missing, or several fit and no setting chooses one.
    """
    found = _said(file, _Features).features
    image = _of_sort(file, found, "image", settings.file_column, "an encoded image", "file_column")
    label = _of_sort(file, found, "classLabel", settings.label_column, "a label of classes", "label_column")
    classes = str(found[label]["classLabel"].get("numClasses", ""))
    if not re.fullmatch(r"[0-9]{1,9}", classes):
        raise SourceError(f"{file.path}: {label} has {printable(classes)!r} classes, expected a number; {_REMEDY}")
    return image, label, int(classes)


def _of_sort(
    file: ListedFile, features: Mapping[str, dict[str, Any]], sort: str, given: str, what: str, setting: str
) -> str:
    """Return the name of the only feature of a type, or the one that a setting chooses."""
    fitting = [name for name, said in features.items() if is_object(said.get(sort))]
    if given in fitting or (len(fitting) == 1 and not given):
        return given or fitting[0]
    if not fitting:
        all_of_them = ", ".join(map(printable, features)) or "none"
        raise SourceError(f"{file.path}: got the features {all_of_them}, expected {what} in TFDS's types")
    asked = f", but {printable(given)} is not" if given else ""
    there = " and ".join(map(printable, fitting))
    raise SourceError(f"{file.path}: each of {there} is {what}{asked}; choose one by --set conversion.{setting}=NAME")


def _shards(said: _Info, beside: Mapping[str, ListedFile]) -> list[Shard]:
    """Return the shards listed in dataset_info.json, in order.

    Raises:
        SourceError: the file format is not TFRecord, a shard is missing, or there is none.
    """
    info = beside[INFO].path
    if said.format != "tfrecord":
        remedy = "prepare it with file_format='tfrecord'"
        raise SourceError(f"{info}: the file format is {printable(said.format)} vs tfrecord; {remedy}")
    shards: list[Shard] = []
    for split in said.splits:
        count = len(split.lengths)
        if count > len(beside):
            raise SourceError(
                f"{info} lists {plural(count, 'shard')} vs {plural(len(beside), 'file')} beside it; {_REMEDY}"
            )
        for at, records in enumerate(split.lengths):
            file = f"{said.name}-{split.name}.tfrecord-{at:05}-of-{count:05}"
            file = file if file in beside else file.removesuffix(f"-of-{count:05}")  # TFDS's SequentialWriter omits it
            if file not in beside:
                raise SourceError(f"{info} lists a shard {printable(file)}, which does not exist; {_REMEDY}")
            shards.append(Shard(beside[file], split.name.lower(), records))
    if not shards:
        raise SourceError(f"{info} lists no split with a shard; {_REMEDY}")
    return shards


def _records(shard: Shard) -> Iterator[tuple[int, bytes]]:
    """Yield the byte offset of each record's content in a shard, and the content.

    Raises:
        SourceError: the file cannot be read, is truncated or damaged, or has another number of records than INFO says.
    """
    count, place = 0, 0
    with opened(shard.file, "TFRecords", _REMEDY), Path(shard.file.path).open("rb") as stream:
        while head := stream.read(HEADER_BYTES):
            where = f"{shard.file.path}: record {count} at byte {place:,}"
            if len(head) < HEADER_BYTES or masked_crc(head[:8]) != head[8:]:
                raise SourceError(f"{where} is cut or damaged: its length does not match its checksum; {_REMEDY}")
            size = int.from_bytes(head[:8], "little")
            if size > 2 * bounds.IMAGE_BYTES:
                raise SourceError(f"{where} has {size:,} bytes vs {2 * bounds.IMAGE_BYTES:,} at most; {_REMEDY}")
            record, crc = stream.read(size), stream.read(4)
            if masked_crc(record) != crc:
                raise SourceError(f"{where} is cut or damaged: its bytes do not match their checksum; {_REMEDY}")
            yield place + HEADER_BYTES, record
            place, count = place + HEADER_BYTES + size + 4, count + 1
    if count != shard.records:
        raise SourceError(f"{shard.file.path} has {plural(count, 'record')} vs {shard.records:,} in {INFO}; {_REMEDY}")


def _only(values: Sequence[Value]) -> Value | None:
    return values[0] if len(values) == 1 else None
