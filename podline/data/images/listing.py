"""Lists the files of a source, and the folders without one."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from podline.data.images.settings import ImagesSettings
from podline.data.places import IMAGE_ENDINGS
from podline.data.rawfiles import reading
from podline.errors import SourceError

_ARCHIVES = (".tar", ".tgz", ".gz", ".zip")  # whatever lies beside one is not meant
_MOST_VISITS, _DEEPEST = 100, 100  # of a folder, by links to it; of folders above a file


class Found(NamedTuple):
    """A file, or a folder without a file.

    Attributes:
        name: its path in the listed folder.
        path: where it is.
        bytes: its size; -1 of what is no file that can be read.
        changed: when its content, its name or its rights changed last, in nanoseconds.
    """

    name: str
    path: str
    bytes: int
    changed: int

    @property
    def folder(self) -> str:
        """Return the folder that it lies in, as a path in the listed one; of a folder without a file, its own."""
        return self.name if self.bytes < 0 and Path(self.path).is_dir() else self.name.rpartition("/")[0]

    @property
    def hidden(self) -> bool:
        """Whether it, or a folder that it is in, is none of the user's."""
        return _NOT_OURS.search(self.name) is not None

    @property
    def is_image(self) -> bool:
        """Whether its name ends as that of an image."""
        return self.name[self.name.rfind(".") :].lower() in IMAGE_ENDINGS

    @property
    def state(self) -> list[object]:
        """What tells that the content is still the same."""
        return [self.name, self.bytes, self.changed]


_NOT_OURS = re.compile(r"(?:^|/)(?:\.|(?:__MACOSX|Thumbs\.db|desktop\.ini|@eaDir)(?:/|$))")


@dataclass(frozen=True)
class Files:
    """The files of a source.

    Attributes:
        asked: those that the source names.
        around: all that may be meant: beside a table lie the images that it names.
    """

    asked: Sequence[Found]
    around: Sequence[Found]

    @cached_property
    def readable(self) -> list[Found]:
        """Return the files that the source names, without what is hidden or cannot be read."""
        return [file for file in self.asked if file.bytes >= 0 and not file.hidden]

    @property
    def state(self) -> list[object]:
        """Return what tells that the content of all of them is still the same."""
        beside = [] if self.around is self.asked else self.around
        return [[file.state for file in files] for files in (self.asked, beside)]

    def ending(self, *endings: str) -> list[Found]:
        """Return the readable files whose names end so."""
        return [file for file in self.readable if file.name.endswith(endings)]


def source_files(place: Path, settings: ImagesSettings) -> Files:
    """Return the files of a source; none is opened.

    Args:
        place: a folder or a file.
        settings: may name a folder of images.

    Raises:
        SourceError: nothing is there.
    """
    if not place.exists():
        raise SourceError(f"{place} does not exist; give an existing folder or file")
    asked = [one(place)] if place.is_file() else listing(place)
    folder = place.parent if place.is_file() else place
    if settings.images:
        images = folder / Path(settings.images).expanduser()
        if not images.is_dir():
            raise SourceError(f"{images} is no folder vs one with a table's images, as --set conversion.images says")
        return Files(asked, listing(images))
    return Files(asked, listing(folder) if place.is_file() and place.suffix not in _ARCHIVES else asked)


def listing(folder: Path) -> list[Found]:
    """Everything below a folder, by name; folders that are links are followed, but into themselves.

    Raises:
        SourceError: a folder cannot be read.
    """
    return sorted(_below(str(folder), "", (), Counter()))


def one(path: Path) -> Found:
    """Return a file by itself.

    Raises:
        SourceError: it cannot be read.
    """
    with reading(path):
        status = path.stat()
    return Found(path.name, str(path), status.st_size, status.st_ctime_ns)


def _below(
    folder: str, prefix: str, above: tuple[tuple[int, int], ...], visits: Counter[tuple[int, int]]
) -> Iterator[Found]:
    with reading(folder):
        status, entries = Path(folder).stat(), list(os.scandir(folder))
    here = (status.st_dev, status.st_ino)
    visits[here] += 1
    if visits[here] > _MOST_VISITS or len(above) > _DEEPEST:
        raise SourceError(
            f"{folder} is one of more than {_MOST_VISITS} paths to one folder, or more than {_DEEPEST} folders deep: "
            "folders are linked to each other; remove these links"
        )
    if here in above or not entries:
        yield Found(prefix.rstrip("/"), folder, -1, status.st_ctime_ns)
        return
    for entry in entries:
        name = prefix + entry.name
        if _is_folder(entry):
            yield from _below(entry.path, f"{name}/", (*above, here), visits)
        else:
            yield _found(name, entry)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _found(name: str, entry: os.DirEntry[str]) -> Found:
    try:
        status = entry.stat()
        return Found(name, entry.path, status.st_size if entry.is_file() else -1, status.st_ctime_ns)
    except OSError:  # a link to nothing
        return Found(name, entry.path, -1, 0)
