"""List the files and the empty folders of a source."""

from __future__ import annotations

import functools
import os
import re
import stat
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from podline.base.errors import SourceError
from podline.base.progress import alive
from podline.data.images.arrow_file import TEXT, compute, encoded, mapped, texts_in, write_rows
from podline.data.images.settings import PictureSettings
from podline.data.places import IMAGE_ENDINGS
from podline.data.rawfiles import reading
from podline.recipes.datasets import ConverterSettings
from podline.store import digests
from podline.store.contract import SCRATCH

_ARCHIVES = (".tar", ".tgz", ".gz", ".zip")  # given as the source, files next to it are ignored
# Names that only Podline's data sets have; a folder with only scratch space may contain generated images.
_OF_DATA = frozenset({"manifest.json", "features.json", "stages/"})
_OF_STORE = frozenset({"datasets/", "runs/", "versions/", "first-images/"})
_MOST_VISITS, _DEEPEST = 100, 100  # largest number of paths to one folder through links, and of nested folders


class ListedFile(NamedTuple):
    """A file of a source, or a folder whose files are not listed: it is empty, unreadable, or a link to one above.

    Attributes:
        name: path relative to the listed folder.
        path: path on this machine.
        bytes: size in bytes; -1 if it is a folder or cannot be read as a file.
        changed: time of the last change of content, name or permissions, in nanoseconds; 0 if unknown.
    """

    name: str
    path: str
    bytes: int
    changed: int

    @property
    def folder(self) -> str:
        """Return the path of the file's folder relative to the listed folder; for a folder, its own path."""
        return self.name if self.bytes < 0 and Path(self.path).is_dir() else self.name.rpartition("/")[0]

    @property
    def hidden(self) -> bool:
        """Return whether the file, or a folder in its path, is hidden or a system file."""
        return is_hidden(self.name)

    def ends(self, *endings: str) -> bool:
        """Return whether the name has one of these extensions, in lower case, ignoring the case of the name."""
        return self.name.lower().endswith(endings)

    @property
    def is_image(self) -> bool:
        """Return whether the name has the extension of an image file."""
        return self.name[self.name.rfind(".") :].lower() in IMAGE_ENDINGS


_NOT_OURS = re.compile(
    r"(?:^|/)(?:\.(?!\.?(?:/|$))|(?:__MACOSX|Thumbs\.db|desktop\.ini|@eaDir|#recycle|\$RECYCLE\.BIN|Icon\r)(?:/|$))"
)


def is_hidden(name: str) -> bool:
    """Return whether a component of a path, on disk or in an archive, is hidden or a system file."""
    return _NOT_OURS.search(name) is not None


_TYPES = {"name": TEXT, "bytes": pa.int64(), "changed": pa.int64()}


class Listing:
    """The files below a folder, stored in a file, so that a listing takes little memory and can be pickled.

    Args:
        folder: the listed folder.
        path: path of the file with the listing.
    """

    def __init__(self, folder: str, path: Path) -> None:
        self._folder, self.path = folder.rstrip("/"), path

    def __reduce__(self) -> tuple[type[Self], tuple[str, Path]]:
        return type(self), (self._folder, self.path)

    def __iter__(self) -> Iterator[ListedFile]:
        yield from self._files(self._table)

    def ending(self, *endings: str) -> Iterator[ListedFile]:
        """Yield the files with one of these extensions, ignoring case."""
        found = [compute.ends_with(self._table["name"], encoded(ending), ignore_case=True) for ending in endings]
        yield from self._files(self._table.filter(functools.reduce(compute.or_, found)) if found else self._table[:0])

    def __len__(self) -> int:
        return len(self._table)

    def take(self, numbers: npt.NDArray[np.int64]) -> Iterator[ListedFile]:
        """Yield the files with these numbers."""
        for number in numbers.tolist():
            yield from self._files(self._table.slice(number, 1))

    def relative(self, path: str) -> str:
        """Return an absolute path in the listed folder as a relative path; return other paths unchanged."""
        top = os.path.abspath(self._folder)  # noqa: PTH100 (links stay as they are)
        return path.removeprefix(f"{self._folder}/").removeprefix(f"{top}/")

    def _files(self, table: Any) -> Iterator[ListedFile]:
        top = f"{self._folder}/"
        for batch in table.to_batches():
            names, *numbers = batch.columns
            alive()
            for path, size, changed in zip(texts_in(names), *(column.to_pylist() for column in numbers), strict=True):
                yield ListedFile(path, top + path if path else self._folder or "/", size, changed)

    @cached_property
    def _table(self) -> Any:
        return mapped(self.path)


class Names:
    """Finds files by a key derived from their names; the index takes 16 bytes per file.

    Args:
        files: the files of a source.
        name: returns the key of a file; None leaves the file out of the index.
    """

    def __init__(self, files: Listing, name: Callable[[ListedFile], str | None]) -> None:
        self._files, self._name = files, name
        hashes = np.fromiter((hash(name(file)) for file in files), np.int64, len(files))
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order].data

    def find(self, name: str) -> list[ListedFile]:
        """Return the files with this key."""
        first, end = (bisect(self._hashes, hash(name)) for bisect in (bisect_left, bisect_right))
        return [file for file in self._files.take(self._order[first:end]) if self._name(file) == name]


@dataclass(frozen=True)
class Files:
    """The files of a source, and the files around it.

    Attributes:
        place: path of the source, a folder or a file.
        asked: the files in the source itself.
        around: all files to which the source may refer, such as the images next to a table.
    """

    place: str
    asked: Listing
    around: Listing

    @property
    def readable(self) -> Iterator[ListedFile]:
        """Yield the files of the source that are readable and not hidden."""
        return (file for file in self.asked if file.bytes >= 0 and not file.hidden)

    @property
    def beside(self) -> Iterator[ListedFile]:
        """Yield the files to which the source may refer but that are not in the source."""
        around = () if self.around is self.asked else self.around
        return (file for file in around if file.path != self.place and not file.path.startswith(f"{self.place}/"))

    @property
    def state(self) -> str:
        """Return a digest that changes when the content of any file changes."""
        return digests.of_json([digests.of_file(listed.path) for listed in (self.asked, self.around)])

    def ending(self, *endings: str) -> list[ListedFile]:
        """Return the readable, not hidden files with one of these extensions."""
        return [file for file in self.asked.ending(*endings) if file.bytes >= 0 and not file.hidden]


def source_files(place: Path, settings: PictureSettings, folder: Path) -> Files:
    """List the files of a source without opening any.

    Args:
        place: a folder or a file.
        settings: settings that may name a folder of images.
        folder: an existing folder, in which the listing is stored.

    Raises:
        SourceError: the source does not exist, cannot be read, or is a store of Podline; or the folder of images that
            the settings name is none.
        StoreError: the folder cannot be written.
    """
    if not place.exists():
        raise SourceError(f"{place} does not exist; give an existing folder or file")
    if place.is_dir() and _is_store(f"{path.name}/" for path in place.iterdir()):
        raise SourceError(f"{place} is a store of Podline; give another folder as the source, or another --root")
    asked = write_listing(_above(place), listing(place), folder / "asked.arrow")
    for around in folders_around(place, settings):
        if not around.is_dir():
            raise SourceError(f"{around} is not a folder; set conversion.images to the folder of the table's images")
        return Files(str(place), asked, write_listing(around, listing(around), folder / "around.arrow"))
    return Files(str(place), asked, asked)


def folders_around(place: Path, settings: ConverterSettings) -> list[Path]:
    """Return the folders with files to which a source may refer: those of the settings, else the folder of a file."""
    if settings.folders:
        return [_above(place) / Path(name).expanduser() for name in settings.folders]
    return [place.parent] if place.is_file() and place.suffix.lower() not in _ARCHIVES else []


def _above(place: Path) -> Path:
    return place.parent if place.is_file() else place


def write_listing(folder: Path, files: Iterable[ListedFile], path: Path) -> Listing:
    """Store a listing of the files below a folder in a file.

    Raises:
        StoreError: the file cannot be written.
    """
    write_rows(path, _TYPES, ((file.name, file.bytes, file.changed) for file in files))
    return Listing(str(folder), path)


def listing(place: Path) -> Iterator[ListedFile]:
    """Yield a file, or all files below a folder and the folders without listed files, by name.

    Links are followed. Data of Podline's stores are skipped.

    Raises:
        SourceError: the folder cannot be read, or folders are linked to each other too often.
    """
    if place.is_file():
        yield _found(place.name, str(place))
    else:
        yield from _below(str(place), "", (), Counter())


def _below(
    folder: str, prefix: str, above: tuple[tuple[int, int], ...], visits: Counter[tuple[int, int]]
) -> Iterator[ListedFile]:
    try:
        with reading(folder):
            status = Path(folder).stat()
            with os.scandir(folder) as entries:
                names = sorted(f"{entry.name}/" if _is_folder(entry) else entry.name for entry in entries)
    except SourceError as error:
        if not above or not isinstance(error.__cause__, PermissionError):
            raise
        yield ListedFile(prefix.rstrip("/"), folder, -1, 0)  # such as lost+found at the top of a disk
        return
    if above and (_is_store(names) or {*names} >= _OF_DATA):
        return
    here = (status.st_dev, status.st_ino)
    visits[here] += 1
    if visits[here] > _MOST_VISITS or len(above) > _DEEPEST:
        raise SourceError(
            f"{folder} is one of more than {_MOST_VISITS} paths to one folder, or more than {_DEEPEST} folders deep: "
            "folders are linked to each other; remove these links"
        )
    if here in above or not names:
        yield ListedFile(prefix.rstrip("/"), folder, -1, status.st_ctime_ns)
        return
    for name in filter(f"{SCRATCH}/".__ne__, names):
        alive()
        path = os.path.join(folder, name)  # noqa: PTH118 (millions of them)
        if name.endswith("/"):
            yield from _below(path[:-1], prefix + name, (*above, here), visits)
        else:
            yield _found(prefix + name, path)


def _is_store(names: Iterable[str]) -> bool:
    """Return whether a folder with these entries is a store of Podline."""
    found = {*names}
    return f"{SCRATCH}/" in found and bool(found & _OF_STORE)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _found(name: str, path: str) -> ListedFile:
    try:
        status = os.stat(path)  # noqa: PTH116 (likewise)
    except OSError:  # a broken link
        return ListedFile(name, path, -1, 0)
    return ListedFile(name, path, status.st_size if stat.S_ISREG(status.st_mode) else -1, status.st_ctime_ns)
