"""WebDataset: tar files with samples such as ``key.jpg`` next to ``key.cls`` or ``key.json``.

The format: https://github.com/webdataset/webdataset. The members of a sample are adjacent. Their common path up to the
first dot of the file name is the sample's key; the rest is the suffix, such as ``jpg`` or ``mask.png``.
"""

from __future__ import annotations

import gzip
import json
import shlex
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

from podline.base.entry_points import reason
from podline.base.errors import SourceError
from podline.base.frozen import is_object
from podline.data import bounds
from podline.data.images.columns import (
    NONE,
    ROWS,
    LabelColumn,
    NoColumnError,
    class_columns,
    known_columns,
    label_of,
    refuse_boxes,
    text_of,
    value_in,
)
from podline.data.images.items import Item, Place, split_in_name
from podline.data.images.layout import Layout, opened
from podline.data.images.listing import Files, ListedFile, is_hidden
from podline.data.images.settings import ImagesSettings
from podline.data.rawfiles import reading
from podline.data.shown import printable

ENDINGS = (".tar", ".tgz", ".tar.gz")
_IMAGES = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "img", "image"})
_CLASSES, _TEXT, _JSON = ("cls", "class", "label"), "txt", "json"
_KEY = "__key__"  # pseudo-column that stands for a sample's image
_REMEDY = "restore the archive"
_UNDOTTED = "s,^[.]/,,;s/[.]/_/g;s/_\\([^_]*\\)$/.\\1/"  # for tar: all dots but the last become underscores

Sample = dict[str, Place | bytes]
"""Suffix after the key (``jpg``, ``cls`` …) → content or location of the member."""


@dataclass(frozen=True)
class WebDataset(Layout):
    """The layout of WebDataset's tar files, which are read anew for each pass, since they may be large.

    Attributes:
        settings: settings of the conversion.
        said: field of the JSON, or suffix → the labels of the samples read so far.
        first: the JSON objects of the first samples.
    """

    read: Sequence[ListedFile]
    settings: ImagesSettings
    said: dict[str, LabelColumn] = field(default_factory=lambda: defaultdict(LabelColumn), init=False, compare=False)
    first: list[dict[str, Any]] = field(default_factory=list, init=False, compare=False)

    accepts = "WebDataset's tar files (photo.jpg beside photo.cls)"
    opens = ENDINGS

    @classmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return the layout of the tar files; None if there are none, or no sample has a class.

        Raises:
            SourceError: a tar file cannot be read, or the keys of its samples contain dots.
        """
        archives = files.ending(*ENDINGS)
        return cls(archives, settings) if any(_has_samples(file, settings) for file in archives) else None

    @property
    def words(self) -> str:
        """Describe the number of tar files."""
        return f"WebDataset, archives: {len(self.read)}"

    def items(self) -> Iterator[Item]:
        """Yield an item for each sample; at the end, raise an error if the labels are not classes."""
        labelled = False
        for file in self.read:
            parts = set[int]()
            for key, sample in _samples(file):
                labels = _labels(sample, self.settings)
                if not labels:
                    _refuse_dotted(file, key, sample)
                if not (labels and _images(sample, self.settings)):
                    _refuse_unsorted(file, key, parts)
                item = self._item(file, key, sample)
                labelled |= item.label is not None
                yield item
        if self.first and not labelled:
            class_columns(self._where, [_KEY, *self.first[0]], self.settings, lambda: self.first, _KEY)
        for column, labels in self.said.items():
            labels.refuse_unclear(self.read[0].path, column, self.settings)

    @property
    def _where(self) -> str:
        return f"{self.read[0].path}: a sample's JSON"

    def _item(self, file: ListedFile, key: str, sample: Sample) -> Item:
        key, split = printable(f"{file.name}/{key}", 1_000), split_in_name(file.name)
        images = _images(sample, self.settings)
        if len(images) != 1:
            has = f"has {len(images)} images, {', '.join(images)}," if images else f"has {', '.join(sample)}"
            remedy = f"; choose one by --set conversion.file_column={images[0]}" if images else ""
            stray = not images and not {*_CLASSES} & sample.keys()
            data = next((sample[ending] for ending in sample if stray and ending != _JSON), b"")
            return Item(key, data, None, split, reason=printable(f"{has} vs one image{remedy}"), stray=stray)
        try:
            label, named, group = self._read(sample, file)
        except ValueError as error:
            return Item(key, b"", None, split, reason=str(error))
        return Item(key, sample[images[0]], label, named or split, group)

    def _read(self, sample: Sample, file: ListedFile) -> tuple[str | None, str, str]:
        """Return label, split and group of a sample; None or empty if it has none.

        Raises:
            ValueError: a value is invalid.
        """
        label, split, group = None, "", ""
        members = _labels(sample, self.settings)
        if _JSON in sample:
            values = _json(sample)
            if len(self.first) < ROWS:
                self.first.append(values)
            by_member = members[0] != _JSON
            settings = self.settings.model_copy(update={"label_column": NONE}) if by_member else self.settings
            try:
                columns = known_columns("the JSON of a sample", [_KEY, *values], settings, _KEY)
            except NoColumnError as error:
                raise ValueError(f"cannot be used: {error}") from None
            if columns.label:
                self.said[columns.label].add(value_in(values, columns.label))
                refuse_boxes(self._where, list(values), self.settings)
            label, split, group = columns._replace(mark=self.settings.joining).read(values, file.name, self.settings)
            members = members if by_member else [] if columns.label else members[1:]
        if members:
            text = text_of(_content(sample[members[0]])) or ""
            label = label_of(text, self.settings, self.settings.joining)
            self.said[members[0]].add(text)
        return label, split, group


def _images(sample: Sample, settings: ImagesSettings) -> list[str]:
    """Return the suffixes of image members, or the chosen one; those with a further dot only if there are no others."""
    if given := settings.file_column.lower().removeprefix("."):
        return [given] if given in sample else []
    dotted = [ending for ending in sample if ending.rpartition(".")[2] in _IMAGES]
    return [ending for ending in dotted if ending in _IMAGES] or dotted


def _labels(sample: Sample, settings: ImagesSettings) -> list[str]:
    """Return the suffixes of members that may contain the class, the most likely first; empty if there are none."""
    given = settings.label_column.lower().removeprefix(".")
    endings = (given, _JSON) if given else (*_CLASSES, _JSON, _TEXT)
    return [ending for ending in endings if ending in sample]


def _refuse_unsorted(file: ListedFile, key: str, parts: set[int]) -> None:
    """Raise an error if an incomplete sample with this key was read before: the sample's members are not adjacent.

    ``parts``: hashes of the keys of the tar file's incomplete samples so far; this function adds that of ``key``.
    """
    if hash(key) in parts:
        raise SourceError(
            f"{file.path}: the members of {printable(key)} are not adjacent, as WebDataset expects; write the archive "
            "with `tar --sort=name`"
        )
    parts.add(hash(key))


def _has_samples(file: ListedFile, settings: ImagesSettings) -> bool:
    """Return whether any sample of a tar file has a class; a text without an image is no class."""
    for key, sample in _samples(file):
        labels = _labels(sample, settings)
        if labels and (labels != [_TEXT] or _images(sample, settings)):
            return True
        _refuse_dotted(file, key, sample)
    return False


def _refuse_dotted(file: ListedFile, key: str, sample: Sample) -> None:
    """Raise an error if a sample's key seems to contain dots.

    If names were split at their last dot instead of the first, an image would have the same key as a class.
    """
    stems = {ending.rpartition(".")[0] for ending in sample if ending.rpartition(".")[2] in _IMAGES} - {""}
    for ending in sample:
        stem, _, last = ending.rpartition(".")
        if stem in stems and last in (*_CLASSES, _JSON, _TEXT):
            old = PurePosixPath(file.path)
            paths = old.with_suffix(".unpacked"), old, old.with_suffix(".new.tar")
            folder, archive, new = (shlex.quote(str(path)) for path in paths)
            raise SourceError(
                f"{file.path}: WebDataset ends the key of {printable(f'{key}.{ending}')} at the first dot, so samples "
                f"are mixed up; remove the other dots: `mkdir {folder} && tar xf {archive} -C {folder} --transform="
                f"'{_UNDOTTED}' && tar cf {new} --sort=name -C {folder} .`, and give the new archive"
            )


def _samples(file: ListedFile) -> Iterator[tuple[str, Sample]]:
    """Yield key and members of each sample in a tar file."""
    key, sample = "", Sample()
    for name, place in _members(file):
        folder, _, last = name.rpartition("/")
        stem, _, ending = last.partition(".")
        this = f"{folder}/{stem}" if folder else stem
        if this != key or ending.lower() in sample:
            if sample:
                yield key, sample
            key, sample = this, Sample()
        sample[ending.lower()] = place
    if sample:
        yield key, sample


def _members(file: ListedFile) -> Iterator[tuple[str, Place | bytes]]:
    """Yield name and location of each file in a tar file, or its first bytes, enough for any image, if compressed."""
    packed, unpacked, most = not file.ends(ENDINGS[0]), 0, bounds.unpacked(file.bytes)
    # With a gzip file, tarfile itself would copy the remaining unpacked data for each member.
    unpack: Any = gzip.open if packed else Path.open
    with (
        opened(file, "a tar file", _REMEDY),
        unpack(Path(file.path), "rb") as stream,
        tarfile.open(fileobj=stream, mode="r|" if packed else "r:") as tar,
    ):
        untyped: Any = tar
        while (member := untyped.next()) is not None:
            untyped.members = []  # else tarfile keeps all members in memory
            unpacked += member.size
            if unpacked > most:
                raise SourceError(f"{file.path} has {file.bytes:,} bytes, but unpacks to more than {most:,}; {_REMEDY}")
            if member.isreg() and not member.issparse() and not is_hidden(member.name):
                place, name = Place(file.path, member.offset_data, member.size), member.name.removeprefix("./")
                yield name, untyped.extractfile(member).read(bounds.IMAGE_BYTES + 1) if packed else place
        if not packed:
            _require_end(file, tar.offset)


def _require_end(file: ListedFile, end: int) -> None:
    """Raise an error unless a tar file ends with zeros: a block of them at least, and a megabyte at most."""
    with reading(file.path), Path(file.path).open("rb") as stream:
        stream.seek(end)
        rest = stream.read(bounds.CLASS_FILE_BYTES)
        if len(rest) < tarfile.BLOCKSIZE or any(rest) or stream.read(1):
            size = f"{file.bytes:,} bytes, of which {end:,} were read"
            raise SourceError(
                f"{file.path} does not end like a tar file, with {tarfile.BLOCKSIZE} to {bounds.CLASS_FILE_BYTES:,} "
                f"zeros: {size}; {_REMEDY}"
            )


def _json(sample: Sample) -> dict[str, Any]:
    """Return the JSON object of a sample.

    Raises:
        ValueError: the JSON is invalid or not an object.
    """
    try:
        values: Any = json.loads(_content(sample[_JSON]))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"has JSON that cannot be read: {printable(reason(error))}") from None
    if not is_object(values):
        raise ValueError("has JSON that is not an object")
    return values


def _content(place: Place | bytes) -> bytes:
    """Return the content of a small member of a sample.

    Raises:
        ValueError: the member is too large.
    """
    size = len(place) if isinstance(place, bytes) else place.bytes
    if size > bounds.CLASS_FILE_BYTES:
        raise ValueError(f"has a class or JSON of {size:,} bytes vs {bounds.CLASS_FILE_BYTES:,} at most")
    if isinstance(place, bytes):
        return place
    with reading(place.path), Path(place.path).open("rb") as stream:
        stream.seek(place.start)
        return stream.read(size)
