"""The interface of a layout, a way to store images and their classes. docs/how-to/data-set.md adds a layout."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from podline.base.frozen import JsonObject
from podline.data.images.items import HELD_OUT, TRAIN_NAMES, Item, Place
from podline.data.images.listing import Files, ListedFile
from podline.data.images.settings import ImagesSettings
from podline.data.lfs import refuse_lfs_pointer
from podline.data.rawfiles import reading
from podline.data.sandbox.child import begin
from podline.data.sandbox.limits import ParseLimits

NOTES = "notes"
"""The key in :attr:`Layout.facts` of :attr:`Layout.notes`."""
_PLACEHOLDER = re.compile(r"|-[0-9]+(?:\.0*)?|\[\]|\?|nan|none|null|n/?a|unknown", re.IGNORECASE)
_ENTRY_BYTES = 500  # weight of each file of the source in the limits
_WAIT = 60.0  # seconds to wait for a slow disk

_entries = 0  # number of files in the source that this sandbox process reads


@dataclass(frozen=True)
class Layout(ABC):
    """A source in a known layout.

    Attributes:
        read: the files that the layout reads.
        labels: split → labels of its images, complete after the last item; an image without a label adds "".
        accepts: description of sources in this layout, for errors.
        opens: file name extensions of the files that the layout opens; "" stands for all files. A source without such
            files is listed outside a sandbox; this holds only for Podline's own layouts.
        exclusive: whether the files of a matching source belong to no other layout.
        unread: the reason for leaving out a file that the layout does not read.
    """

    read: Iterable[ListedFile]
    labels: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set), init=False, compare=False)

    accepts: ClassVar[str]
    opens: ClassVar[tuple[str, ...]] = ("",)
    exclusive: ClassVar[bool] = False
    unread: ClassVar[str] = "lies beside the files of the data set"

    @classmethod
    @abstractmethod
    def find(cls, files: Files, settings: ImagesSettings, /) -> Self | None:
        """Return the layout of the files, or None if the files are not in this layout.

        Raises:
            SourceError: the files nearly match; the message names the problem.
        """

    @property
    @abstractmethod
    def words(self) -> str:
        """Describe the source in one line for the log."""

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """Yield the images, and each other file that lies among the images, always in the same order.

        Raises:
            SourceError: the source cannot be read.
        """

    @property
    def splits(self) -> frozenset[str]:
        """Return the source's split names in lower case; by default those of its items, complete after the last."""
        return frozenset(self.labels) - {""}

    @property
    def unlabelled(self) -> frozenset[str]:
        """Return the held-out splits without labels, complete after the last item.

        Each of their images lacks a label, or has a placeholder, such as -1, that no training image has.
        """
        trained = {label for split in TRAIN_NAMES for label in self.labels.get(split, ()) if label}
        return frozenset(
            split
            for split, labels in self.labels.items()
            if split in HELD_OUT and all(is_placeholder(label) and label not in trained for label in labels)
        )

    @property
    def notes(self) -> Sequence[str]:
        """Return log lines about assumptions and doubts; by default none."""
        return ()

    @property
    def facts(self) -> JsonObject:
        """Return facts for the source, complete after the last item; by default notes and splits without labels."""
        unlabelled = (f"the split {name} has no labels, so it is not read" for name in sorted(self.unlabelled))
        return {NOTES: [*self.notes, *unlabelled]}

    def reads(self, file: ListedFile, /) -> bool:
        """Return whether the layout reads a file in or around the source; by default, whether ``read`` has its path."""
        return file.path in self._paths

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(file.path for file in self.read)


def is_placeholder(label: str) -> bool:
    """Return whether a label looks like a placeholder for a missing label, such as -1 or unknown."""
    return _PLACEHOLDER.fullmatch(label) is not None


def outside(file: ListedFile, reason: str) -> Item:
    """Return an item for a file that is left out, because it is a system file or unreadable, or else for ``reason``.

    Folders that the listing contains, such as empty ones, count as unreadable.
    """
    if file.hidden:
        return Item(file.name, b"", reason="is hidden, or the system's own", stray=True)
    if file.bytes < 0:
        folder, readable = Path(file.path).is_dir(), file.changed
        problem = "is a folder without files of its own" if readable else "is a folder that may not be read"
        reason = problem if folder else "cannot be read as a file"
        return Item(file.name, b"", reason=reason, stray=folder or not file.is_image)
    return Item(file.name, Place(file.path), reason=reason, stray=not file.is_image)


def limits_of_file(size: int, entries: int) -> ParseLimits:
    """Return the limits for parsing ``size`` bytes of a source with ``entries`` files."""
    weight = size + _ENTRY_BYTES * entries
    return ParseLimits(40_000_000 + 16 * weight, 0.4 + weight / 4e6, _WAIT)  # a table row becomes a dozen objects


def begin_source(source: str, entries: int) -> None:
    """Set the limits for listing a source of ``entries`` files; see :func:`podline.data.sandbox.child.begin`."""
    global _entries  # noqa: PLW0603 (one child, one source)
    _entries = entries
    begin(limits_of_file(0, entries), source)


@contextmanager
def opened(file: ListedFile, kind: str, remedy: str = "restore the file") -> Iterator[None]:
    """Set the limits for reading a file in the body; see :func:`podline.data.rawfiles.reading` for its exceptions.

    Args:
        file: the file that the body reads.
        kind: the expected format, for errors, such as ``Parquet``.
        remedy: what to do about a file that does not have this format, for errors.

    Raises:
        SourceError: the file cannot be read or does not have this format, or is a Git LFS pointer.
        OutOfMemoryError: the memory is too small.
    """
    path = Path(file.path)
    with reading(path):
        size = path.stat().st_size
    begin(limits_of_file(size, _entries), file.path)
    with reading(file.path, kind, remedy):
        refuse_lfs_pointer(path, file.path)
        yield
