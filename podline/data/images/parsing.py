"""Detect the layout of a source and list its images, in a sandbox that writes the list to files.

One child process reads all files. Its limits grow with the size of the current file and with the number of files in
the source. If names suffice, this process lists the source itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

from podline.base import entry_points
from podline.base.errors import SettingsError, SourceError
from podline.base.frozen import JsonObject
from podline.data.images.arrow_file import start_threads
from podline.data.images.items import Item, Place, unread_splits, write_items
from podline.data.images.layout import Layout, begin_source, limits_of_file, outside
from podline.data.images.listing import Files, ListedFile
from podline.data.images.settings import PictureSettings
from podline.data.lfs import refuse_lfs_pointer
from podline.data.rawfiles import reading
from podline.data.sandbox.pool import Sandbox
from podline.data.sources.unpacking import unpacking
from podline.recipes.parts import LAYOUTS
from podline.store.contract import explained

LISTED = "listed.arrow"
"""The name of the file with the items of a source; see :func:`podline.data.images.items.write_items`."""
_IMAGES = "images"
_REMEMBERED = 10_000  # number of recent embedded images among which equal ones are detected


class Parsed(NamedTuple):
    """A layout's description of a source, without its items.

    Attributes:
        words: description of the source, for the log.
        splits: names of the source's splits with labels.
        unread: names of the splits that are not read: those without labels, and those whose role another split has.
        facts: see :attr:`Layout.facts`.
    """

    words: str
    splits: Sequence[str]
    unread: Sequence[str]
    facts: JsonObject


def parsed(source: str, files: Files, settings: PictureSettings, folder: Path) -> Parsed:
    """Detect the layout of a source and list its images.

    Args:
        source: name of the source, for errors.
        files: files of the source.
        settings: settings that may name the layout.
        folder: a folder for the list, and for copies of images embedded in other files.

    Raises:
        SourceError: the source cannot be read, has no known layout, or exceeds the limits.
        SettingsError: the named layout does not exist, or an installed layout cannot be imported.
        StoreError: the folder cannot be written.
    """
    given = (source, files, settings, str(folder))
    if not _opens_files(files, settings):
        return parse(*given)
    limits = limits_of_file(sum(max(0, file.bytes) for file in files.asked), len(files.around))
    with explained("write", folder), Sandbox(f"{__name__}:lister", settings.layouts) as sandbox:
        return Parsed(*sandbox.one(given, limits, source))


def _opens_files(files: Files, settings: PictureSettings) -> bool:
    """Return whether a layout may open a file; layouts of installed packages and of other data sets always may."""
    if any(name not in LAYOUTS.shipped for name in settings.layouts):
        return True
    endings = tuple(ending for name in settings.layouts for ending in LAYOUTS.load(name).opens)
    return any(True for _ in files.asked.ending(*endings))


def lister(names: Sequence[str]) -> Callable[[Sequence[Any]], Parsed]:
    """Import the layouts in a sandbox process; return a function that calls :func:`parse`."""
    for name in names:
        with contextlib.suppress(SettingsError):  # _found_layout will raise the error
            _load(name)
    start_threads()
    return lambda given: parse(*given)


def parse(source: str, files: Files, settings: PictureSettings, folder: str) -> Parsed:
    """Detect the layout of a source, and write its items into a folder; in a sandbox if any file is opened."""
    begin_source(source, len(files.around))
    name, layout = _found_layout(source, files, settings)
    begin_source(source, len(files.around))
    with explained("write", folder), Path(folder, _IMAGES).open("wb") as stream:
        write_items(Path(folder, LISTED), _placed(_items(source, name, layout, files), stream))
    with reading(source, name):
        unlabelled = layout.unlabelled if settings.targets else frozenset[str]()
        splits = layout.splits - unlabelled
        return Parsed(layout.words, sorted(splits), sorted(unread_splits(splits) | unlabelled), layout.facts)


def _items(source: str, name: str, layout: Layout, files: Files) -> Iterator[Item]:
    """Yield the items of a layout, collecting their labels, then the files that the layout does not read."""
    with reading(source, name):
        for item in layout.items():
            if not item.reason or (item.data and not item.stray):
                layout.labels[item.split].add(item.label or "")
            yield item
        yield from (outside(file, layout.unread) for file in _others(layout, files))


def _placed(items: Iterable[Item], stream: IO[bytes]) -> Iterator[Item]:
    """Write embedded images into ``stream``, and replace the content of each item by its location there.

    An image that equals a recent one is not written again.
    """
    starts = dict[bytes, int]()
    for item in items:
        data = item.data
        if isinstance(data, Place) or not data:
            yield item
            continue
        digest = hashlib.sha256(data).digest()
        start = starts.pop(digest, stream.tell())
        if start == stream.tell():
            stream.write(data)
        starts[digest] = start
        if len(starts) > _REMEMBERED:
            del starts[next(iter(starts))]
        yield item._replace(data=Place(stream.name, start, len(data)))


def _load(name: str) -> type[Layout]:
    """Return a layout class by its name, or by ``module:name`` for a layout that belongs to one data set."""
    return entry_points.load(name) if ":" in name else LAYOUTS.load(name)


def _found_layout(source: str, files: Files, settings: PictureSettings) -> tuple[str, Layout]:
    """Return the name of the layout that matches the files, and the layout.

    Raises:
        SourceError: the source is empty or cannot be read, or matches no layout or several.
        SettingsError: the named layout does not exist, or an installed layout cannot be imported.
    """
    fitting: dict[str, Layout] = {}
    problems: list[str] = []
    kinds: dict[str, type[Layout]] = {name: _load(name) for name in settings.layouts}
    for name, kind in sorted(kinds.items(), key=lambda found: not found[1].exclusive):
        try:
            with reading(source, name):
                layout = kind.find(files, cast(Any, settings))  # each layout knows its settings class
        except SourceError as error:
            if kind.exclusive:
                raise
            problems.append(str(error))
            continue
        if layout and kind.exclusive:
            return name, layout
        fitting |= {name: layout} if layout else {}
    if len(fitting) > 1:
        words = "; ".join(layout.words for layout in fitting.values())
        raise SourceError(f"{source} matches several layouts: {words}; choose one by --layout {' or '.join(fitting)}")
    if not fitting:
        wanted = "images" if settings.layouts[1:] else f"images as {settings.layouts[0]}"
        why = "".join(f"; {problem}" for problem in [*dict.fromkeys(problems)][:2])
        remedy = "" if "Git LFS" in why or "tar xf" in why else _remedy(files, nearly=bool(why))
        raise SourceError(f"{source} is not a source of {wanted}: it holds {_summary(files.asked)}{why}{remedy}")
    return next(iter(fitting.items()))


def _others(layout: Layout, files: Files) -> Iterator[ListedFile]:
    """Yield the files that a layout does not read, in the source and in the image folders that a table uses."""
    folders = {posixpath.dirname(file.path) for file in files.beside if layout.reads(file)}
    beside = (file for file in files.beside if posixpath.dirname(file.path) in folders)
    asked = () if layout.read is files.asked else files.asked
    yield from (file for file in chain(asked, beside) if not layout.reads(file))


def _remedy(files: Files, *, nearly: bool) -> str:
    """Return the remedy for an unknown layout: unpack archives, or use an accepted layout if none nearly matches."""
    for file in files.ending(".zip", ".gz", ".tgz"):
        refuse_lfs_pointer(Path(file.path), file.path)
    if remedy := unpacking([file.path for file in files.asked if not file.hidden]):
        return (
            f"; the only archives that are read are tar files of a WebDataset (photo.jpg next to photo.cls): {remedy}"
        )
    accepted = "" if nearly else f"; accepted are {', '.join(LAYOUTS.load(name).accepts for name in LAYOUTS.names())}"
    return f"{accepted}; see docs/how-to/images.md"


def _summary(files: Iterable[ListedFile]) -> str:
    """Return the number of files for the most frequent extensions, as text."""
    kinds = Counter(PurePosixPath(file.name).suffix.lower() or "other" for file in files if file.bytes >= 0)
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(5)) or "nothing"
