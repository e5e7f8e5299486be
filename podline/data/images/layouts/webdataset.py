"""WebDataset: tar files of samples, ``key.jpg`` beside ``key.cls`` or ``key.json``.

The format: https://github.com/webdataset/webdataset. Members of a sample follow each other; a sample's key is its
members' path up to the first dot of the name.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from podline.data import bounds
from podline.data.images.columns import Labels, NoColumnError, class_columns, known_columns, refuse_boxes
from podline.data.images.items import Item, Place, split_in_name
from podline.data.images.layout import Layout, opened
from podline.data.images.listing import Files, Found
from podline.data.images.settings import ImagesSettings
from podline.data.rawfiles import reading
from podline.data.shown import printable
from podline.entry_points import reason
from podline.errors import SourceError
from podline.frozen import is_object

ENDINGS = (".tar", ".tgz", ".tar.gz")
_IMAGES = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "img", "image"})
_CLASS, _JSON = "cls", "json"
_KEY = "__key__"  # what leads to a sample's image
_REMEDY = "restore the archive"
# An archive may have one more for so many bytes: a header alone takes 40 bytes of a compressed one.
_FREE_MEMBERS, _MEMBER_BYTES = 10_000, 128

Sample = dict[str, Place | bytes]
"""A sample's members by what follows the key: ``jpg``, ``cls`` …"""


@dataclass(frozen=True)
class WebDataset(Layout):
    """See :class:`podline.data.images.layout.Layout`.

    Attributes:
        settings: of the conversion.
        labels: of the samples that were read, by where these say them.
    """

    settings: ImagesSettings
    labels: dict[str, Labels] = field(default_factory=lambda: defaultdict(Labels), compare=False)

    accepts = "WebDataset's tar files (photo.jpg beside photo.cls)"
    opens = ENDINGS

    @classmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return the tar files; None if there is none, or if they hold no class of a sample."""
        archives = files.ending(*ENDINGS)
        return cls(archives, settings) if any(map(_has_samples, archives)) else None

    @property
    def words(self) -> str:
        """How many archives."""
        return f"WebDataset, archives: {len(self.read)}"

    @property
    def splits(self) -> frozenset[str]:
        """By the samples' JSON, else by the archives' names."""
        return frozenset(item.split for items in self._items.values() for item in items if not item.reason) - {""}

    def items(self) -> Iterator[Item]:
        """Every sample."""
        for file in self.read:
            yield from self._items_of(file) if _packed(file) else self._items[file.name]

    @cached_property
    def _items(self) -> dict[str, list[Item]]:
        """Each archive's samples; of a compressed one without the images' bytes, which may be more than the memory.

        Raises:
            SourceError: an archive cannot be read, or no sample says its class.
        """
        items = {
            file.name: [item._replace(data=b"") if _packed(file) else item for item in self._items_of(file)]
            for file in self.read
        }
        if all(item.label is None for of_file in items.values() for item in of_file):
            self._require_a_label()
        for column, labels in self.labels.items():
            labels.refuse_unclear(self.read[0].path, column, self.settings)
        return items

    def _require_a_label(self) -> None:
        """Raise an error that names the JSON's keys, if a sample has JSON that can be read."""
        for file in self.read:
            said: list[dict[str, Any]] = []
            for _, sample in _samples(file):
                with contextlib.suppress(ValueError):
                    said += [_json(sample)] if _JSON in sample else []
            if said:
                where = f"{file.path}: a sample's JSON"
                class_columns(where, [_KEY, *said[0]], self.settings, partial(iter, said), _KEY)

    def _items_of(self, file: Found) -> Iterator[Item]:
        for key, sample in _samples(file):
            yield self._item(f"{file.name}/{key}", file.name, sample)

    def _item(self, key: str, archive: str, sample: Sample) -> Item:
        key, split = printable(key, 1_000), split_in_name(archive)
        images = [ending for ending in sample if ending.rpartition(".")[2] in _IMAGES]
        if len(images) != 1:
            has = f"has {len(images)} images, {', '.join(images)}," if images else f"has {', '.join(sample)}"
            stray = not images and _CLASS not in sample
            data = next((sample[ending] for ending in sample if stray and ending != _JSON), b"")
            return Item(key, data, None, split, reason=f"{printable(has)} vs one image", stray=stray)
        try:
            label, said, group = self._said(sample, archive)
        except ValueError as error:
            return Item(key, b"", None, split, reason=str(error))
        return Item(key, sample[images[0]], label, said or split, group)

    def _said(self, sample: Sample, archive: str) -> tuple[str | None, str, str]:
        """Return a sample's label, split and group, as far as it says them.

        Raises:
            ValueError: what is there cannot be read.
        """
        label, split, group = None, "", ""
        named = _CLASS in sample and not self.settings.label_column
        if _JSON in sample:
            values = _json(sample)
            try:
                columns = known_columns("its JSON", [_KEY, *values], self.settings, _KEY)
            except NoColumnError as error:
                raise ValueError(f"cannot be used: {error}") from None
            if columns.label and not named:
                self.labels[columns.label].add(values[columns.label])
                refuse_boxes(f"{self.read[0].path}: a sample's JSON", list(values), self.settings)
            label, split, group = columns._replace(label="" if named else columns.label).read(values, archive)
        if named:
            try:
                label = _content(sample[_CLASS]).decode().strip() or None
            except UnicodeDecodeError:
                raise ValueError("has a class that is no UTF-8") from None
            self.labels[_CLASS].add(label)
        return label, split, group


def _has_samples(file: Found) -> bool:
    """Whether one of an archive's first samples has a class."""
    samples = (sample for _, (_, sample) in zip(range(100), _samples(file), strict=False))
    return any(_CLASS in sample or _JSON in sample for sample in samples)


def _samples(file: Found) -> Iterator[tuple[str, Sample]]:
    """Yield the samples of an archive.

    Raises:
        SourceError: it cannot be read, or is cut.
    """
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


def _members(file: Found) -> Iterator[tuple[str, Place | bytes]]:
    """Yield an archive's files, with where their bytes are; of a compressed one the bytes themselves."""
    packed = _packed(file)
    most = bounds.unpacked(file.bytes)
    unpacked = count = 0
    # tarfile's own way to read gzip copies the rest of what it has unpacked at each member.
    unpack: Any = gzip.open if packed else Path.open
    with (
        opened(file, "a tar file", _REMEDY),
        unpack(Path(file.path), "rb") as stream,
        tarfile.open(fileobj=stream, mode="r|" if packed else "r:") as tar,
    ):
        untyped: Any = tar
        while (member := tar.next()) is not None:
            untyped.members = []  # they would all be kept
            unpacked, count = unpacked + member.size, count + 1
            if unpacked > most or count > _FREE_MEMBERS + file.bytes // _MEMBER_BYTES:
                has = f"more than {count - 1:,} files or {most:,} bytes vs {file.bytes:,} bytes of its own"
                raise SourceError(f"{file.path} holds {has}: most of it is empty; {_REMEDY}")
            if member.isreg() and not member.issparse():
                place = Place(file.path, member.offset_data, member.size)
                yield member.name, _unpacked(tar, member) if packed else place
        if not packed:
            _require_end(file, tar.offset)


def _unpacked(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return a member's content, at most one byte more than an image may have."""
    stream = tar.extractfile(member)
    return stream.read(min(member.size, bounds.IMAGE_BYTES + 1)) if stream else b""


def _require_end(file: Found, end: int) -> None:
    """Check that an archive ends with blocks of zeros, and that nothing comes after them."""
    with reading(file.path), Path(file.path).open("rb") as stream:
        stream.seek(end)
        rest = stream.read(bounds.CLASS_FILE_BYTES)
        if len(rest) < tarfile.BLOCKSIZE or any(rest) or stream.read(1):
            size = f"{file.bytes:,} bytes, of which {end:,} were read"
            raise SourceError(f"{file.path} does not end as a tar file does: {size}; {_REMEDY}")


def _json(sample: Sample) -> dict[str, Any]:
    """Return the object in a sample's JSON.

    Raises:
        ValueError: it cannot be read, or is another value.
    """
    try:
        values: Any = json.loads(_content(sample[_JSON]))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"has JSON that cannot be read: {printable(reason(error))}") from None
    if not is_object(values):
        raise ValueError("has JSON that is no object")
    return values


def _packed(file: Found) -> bool:
    return not file.name.endswith(ENDINGS[0])


def _content(place: Place | bytes) -> bytes:
    """Return a small member.

    Raises:
        ValueError: it is not small.
    """
    if isinstance(place, bytes):
        return place
    if place.bytes > bounds.CLASS_FILE_BYTES:
        raise ValueError(f"has a class or JSON of {place.bytes:,} bytes vs {bounds.CLASS_FILE_BYTES:,} at most")
    with reading(place.path), Path(place.path).open("rb", buffering=0) as stream:
        return os.pread(stream.fileno(), place.bytes, place.start)
