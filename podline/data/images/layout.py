"""The contract of a layout: a way to store images and their classes. docs/how-to/data-set.md adds one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from podline.data.images.items import Item, Place
from podline.data.images.listing import Files, Found
from podline.data.images.settings import ImagesSettings
from podline.data.lfs import refuse_lfs_pointer
from podline.data.rawfiles import parsing, reading
from podline.sandbox import Limits, begin

_ENTRY_BYTES = 500  # that a file in the source counts for
_WAIT = 60.0  # seconds for a slow disk

_entries = 0  # of the source that this process, a sandbox's child, reads


@dataclass(frozen=True)
class Layout(ABC):
    """A source in one of the layouts.

    Attributes:
        read: the files that it reads.
        accepts: what such a source looks like, for errors.
        opens: how the names of files end that it opens. One that opens none is found by names alone, outside of a
            sandbox; this counts for Podline's own layouts only.
        exclusive: whether the files of a source that fits can be of no other layout.
        unread: why an image is left out that lies in the source and is not read.
    """

    read: Sequence[Found]

    accepts: ClassVar[str]
    opens: ClassVar[tuple[str, ...]] = ("",)
    exclusive: ClassVar[bool] = False
    unread: ClassVar[str] = "lies beside the files of the data set"

    @classmethod
    @abstractmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return the source that some files are; None if they are of no such layout.

        Raises:
            SourceError: they nearly are: with what is wrong.
        """

    @property
    @abstractmethod
    def words(self) -> str:
        """Return what was found, for the log."""

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """Return the images in an order that does not change, with what lies among them.

        Raises:
            SourceError: the source cannot be read.
        """

    @property
    def splits(self) -> frozenset[str]:
        """Return the source's names of splits, in lower case; by default those of its items."""
        return frozenset(item.split for item in self.items() if not item.reason) - {""}

    def reads(self, file: Found, /) -> bool:
        """Return whether a file of the source, or around it, is read; by default, whether it is in ``read``."""
        return file.path in self._paths

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(file.path for file in self.read)


def outside(file: Found, reason: str) -> Item:
    """Return a file that is left out: as a file of the system, as unreadable, or for another reason."""
    if file.hidden:
        return Item(file.name, b"", reason="is hidden, or the system's own", stray=True)
    if file.bytes < 0:
        empty = Path(file.path).is_dir()
        problem = "is a folder without a file" if empty else "cannot be read as a file"
        return Item(file.name, b"", reason=problem, stray=empty or not file.is_image)
    return Item(file.name, Place(file.path), reason=reason, stray=not file.is_image)


def limits_of_file(size: int, entries: int) -> Limits:
    """Return what reading this many bytes may take, in a source of this many files."""
    weight = size + _ENTRY_BYTES * entries
    return Limits(40_000_000 + 16 * weight, 0.4 + weight / 4e6, _WAIT)  # a row of a table becomes a dozen objects


def begin_source(source: str, entries: int) -> None:
    """Set the limits for the work on a source's list of files; see :func:`podline.sandbox.begin`."""
    global _entries  # noqa: PLW0603 (one child, one source)
    _entries = entries
    begin(limits_of_file(0, entries), source)


@contextmanager
def opened(file: Found, kind: str, remedy: str = "restore the file") -> Iterator[None]:
    """Read a file within limits; whatever is raised while it is read is an error about it.

    Args:
        file: what is read in the body.
        kind: what it should be, for an error: ``Parquet``.
        remedy: what helps if it is not.

    Raises:
        SourceError: it cannot be read, or is a pointer of Git LFS.
    """
    path = Path(file.path)
    with reading(path):
        size = path.stat().st_size
    begin(limits_of_file(size, _entries), file.path)
    with parsing(file.path, kind, remedy):
        refuse_lfs_pointer(path, file.path)
        yield
