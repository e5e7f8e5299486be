"""Reads a source's tables and archives in a sandbox, which writes what they list into files.

One child reads all of them. Limits are in proportion to the bytes of the file that is being read, and to the number of
files in the source.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from podline.data.images.detecting import fitting_layout
from podline.data.images.items import Item, Place, unread_splits
from podline.data.images.limits import begin_source, limits_of_file
from podline.data.images.listing import Found
from podline.data.images.prepared import INFO
from podline.data.images.settings import ImagesSettings
from podline.data.images.tables import ENDINGS as TABLES
from podline.data.images.webdataset import ENDINGS as ARCHIVES
from podline.errors import StoreError
from podline.sandbox import confined
from podline.store.contract import explained

_PARSED = (*TABLES, *ARCHIVES, ".zip", INFO)
_ITEMS, _IMAGES = "items.jsonl", "images"


class Parsed(NamedTuple):
    """What a source lists.

    Attributes:
        words: the layout's, for the log.
        splits: what the source calls its splits.
        folder: where the items are.
    """

    words: str
    splits: frozenset[str]
    folder: Path

    def items(self) -> Iterator[Item]:
        """The items of the layout, in its order; their data are places."""
        with explained("read", self.folder), (self.folder / _ITEMS).open() as stream:
            for line in stream:
                key, data, *rest = json.loads(line)
                yield Item(key, Place(*data) if data else b"", *rest)

    def delete(self) -> None:
        """Delete the items, and the images that were in other files."""
        for name in (_ITEMS, _IMAGES):
            (self.folder / name).unlink(missing_ok=True)


def parsed(
    source: str, files: Sequence[Found], asked: Sequence[Found], settings: ImagesSettings, folder: Path
) -> Parsed:
    """Read a source.

    Args:
        source: what errors call it.
        files: all files that may be meant.
        asked: those that the source names.
        settings: may say which layout it is.
        folder: gets what is read.

    Raises:
        SourceError: it is none that can be read, or takes too much.
        StoreError: the folder cannot be written.
    """
    limits = limits_of_file(sum(max(0, file.bytes) for file in asked), len(files))
    if not any(file.name.endswith(_PARSED) for file in asked):
        words, splits = parse(source, files, asked, settings, str(folder))  # names of files alone
        return Parsed(words, frozenset(splits), folder)
    with explained("write", folder):
        words, splits = confined(
            f"{__name__}:parse", source, files, asked, settings, str(folder), what=source, limits=limits
        )
    return Parsed(words, frozenset(splits), folder)


def parse(
    source: str, files: Sequence[Found], asked: Sequence[Found], settings: ImagesSettings, folder: str
) -> tuple[str, list[str]]:
    """Find the layout of a source and write its items into a folder; runs in a sandbox."""
    begin_source(source, len(files))
    layout = fitting_layout(source, files, asked, settings)
    unread = unread_splits(layout.splits)
    items = (item for item in layout.items() if item.split not in unread)
    with Path(folder, _ITEMS).open("w") as lines, Path(folder, _IMAGES).open("wb") as images:
        images_of = _Images(images)
        begin_source(source, len(files))
        for number, item in enumerate(items):
            data, same = images_of.place(item, number)
            line = json.dumps([item.key, data, *item[2:-1], same])
            try:
                lines.write(f"{line}\n")
            except OSError as error:
                raise _full(lines.name, error) from error
    return layout.words, sorted(layout.splits)


class _Images:
    """A file of images that were in other files; equal ones are written once."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._known: dict[bytes, tuple[int, int]] = {}

    def place(self, item: Item, number: int) -> tuple[Place | None, int]:
        """Return where an item's image is, and the number of the one that has the same; -1 if it is the first."""
        data = item.data
        if isinstance(data, Place) or not data:
            return data or None, -1
        digest = hashlib.sha256(data + item.reason.encode()).digest()
        start, same = self._known.setdefault(digest, (self._stream.tell(), number))
        if same == number:
            try:
                self._stream.write(data)
                self._stream.flush()
            except OSError as error:
                raise _full(self._stream.name, error) from error
            return Place(self._stream.name, start, len(data)), -1
        return Place(self._stream.name, start, len(data)), same


def _full(path: str, error: OSError) -> StoreError:
    return StoreError(f"cannot write {path}: {error.strerror or os.strerror(error.errno or 0)}")
