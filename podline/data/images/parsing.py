"""Lists the images of a source in a sandbox, which writes the items of its layout into files.

One child reads all of them. Limits are in proportion to the bytes of the file that is being read, and to the number of
files in the source.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from podline.data.images.detecting import found_layout, others
from podline.data.images.items import Item, Place, unread_splits
from podline.data.images.layout import Files, begin_source, limits_of_file, outside
from podline.data.images.settings import ImagesSettings
from podline.data.sources.rawfiles import parsing
from podline.errors import SettingsError
from podline.recipes.parts import LAYOUTS
from podline.sandbox import Sandbox
from podline.store.contract import explained

_ITEMS, _IMAGES = "items.jsonl", "images"
_BATCH = 1_000  # items in a line


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
                for key, data, *rest in json.loads(line):
                    yield Item(key, Place(*data) if data else b"", *rest)

    def delete(self) -> None:
        """Delete the items, and the images that were in other files."""
        for name in (_ITEMS, _IMAGES):
            (self.folder / name).unlink(missing_ok=True)


def parsed(source: str, files: Files, settings: ImagesSettings, folder: Path) -> Parsed:
    """Read a source.

    Args:
        source: what errors call it.
        files: of the source.
        settings: may say which layout it is.
        folder: gets what is read.

    Raises:
        SourceError: it is none that can be read, or takes too much.
        SettingsError: see :func:`podline.data.images.detecting.found_layout`.
        StoreError: the folder cannot be written.
    """
    given = (source, files, settings, str(folder))
    limits = limits_of_file(sum(max(0, file.bytes) for file in files.asked), len(files.around))
    with explained("write", folder):
        if _opens_files(files, settings):
            with Sandbox(f"{__name__}:lister", settings.layouts) as sandbox:
                words, splits = sandbox.one(given, limits, source)
        else:
            words, splits = parse(*given)
    return Parsed(words, frozenset(splits), folder)


def _opens_files(files: Files, settings: ImagesSettings) -> bool:
    """Return whether a layout may open a file; what an installed one does is unknown."""
    if any(name not in LAYOUTS.shipped for name in settings.layouts):
        return True
    endings = tuple(ending for name in settings.layouts for ending in LAYOUTS.load(name).opens)
    return any(file.name.endswith(endings) for file in files.asked)


def lister(names: Sequence[str]) -> Callable[[Sequence[Any]], tuple[str, list[str]]]:
    """Import layouts; return :func:`parse` for a sandbox."""
    for name in names:
        with contextlib.suppress(SettingsError):  # it is raised where the layout is looked for
            LAYOUTS.load(name)
    return lambda given: parse(*given)


def parse(source: str, files: Files, settings: ImagesSettings, folder: str) -> tuple[str, list[str]]:
    """Find the layout of a source and write its items into a folder; runs in a sandbox if it opens files."""
    begin_source(source, len(files.around))
    name, layout = found_layout(source, files, settings)
    with Path(folder, _ITEMS).open("w") as lines, Path(folder, _IMAGES).open("wb") as stream, parsing(source, name):
        images = _Images(stream)
        unread = unread_splits(layout.splits)
        left_out = (outside(file, layout.unread) for file in others(layout, files))
        begin_source(source, len(files.around))
        items = (item for item in chain(layout.items(), left_out) if item.split not in unread)
        listed = ([item.key, *images.place(item, number), item] for number, item in enumerate(items))
        rows = ([key, data, *item[2:-1], same] for key, data, same, item in listed)
        while batch := list(islice(rows, _BATCH)):
            with explained("write", lines.name):
                lines.write(f"{json.dumps(batch)}\n")
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
            with explained("write", self._stream.name):
                self._stream.write(data)
            return Place(self._stream.name, start, len(data)), -1
        return Place(self._stream.name, start, len(data)), same
