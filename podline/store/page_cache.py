"""Drops a file's pages from the operating system's page cache.

A data set that memory holds is best left there: who reads it next need not wait for the disk. One that is much larger
drives out everything else, and itself, before anybody comes back to its beginning. Such a one is let go of stretch by
stretch as it is written, and shard by shard as it is read, so that the same few pages serve for all of it.

See ``POSIX_FADV_DONTNEED`` in posix_fadvise(2). Where there is no such call, everything stays.
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from podline.settings import load
from podline.store.contract import explained

_STRETCH_BYTES = 16 * 2**20
"""Enough that waiting for a disk costs little, and that pages come back soon enough to be used again."""

_CONTAINERS_LIMIT = Path("/sys/fs/cgroup/memory.max")


def may_keep(size: int) -> bool:
    """Whether a data set of so many bytes may stay in the page cache: up to half of memory, or as the settings say.

    Raises:
        SettingsError: the settings cannot be understood.
    """
    if not hasattr(os, "posix_fadvise"):
        return True
    limit = load().page_cache
    return size <= (_memory() // 2 if limit is None else limit)


def let_go(path: Path) -> None:
    """Lets go of a file, once the disk has it; what a process has mapped stays all the same.

    Raises:
        StoreError: it cannot be read.
    """
    with explained("read", path):
        _settled(os.open(path, os.O_RDONLY))


class Passing:
    """A file that is written and, if it is not to stay, let go of as soon as the disk has it.

    One thread of the process waits for the disk, at most two stretches behind. It does not wait for the last one.
    """

    def __init__(self, stream: BinaryIO, *, stays: bool) -> None:
        self._stream, self._stays = stream, stays
        self._bytes = 0
        self._settling: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._stream.flush()
            self._settle()

    def add(self, size: int) -> None:
        """Tells that so many bytes were written.

        Raises:
            OSError: the disk did not take what came before.
        """
        self._bytes += size
        if self._bytes >= _STRETCH_BYTES:
            self._settle()

    def _settle(self) -> None:
        if self._stays:
            return
        if self._settling is not None:
            self._settling.result()
        self._bytes = 0
        # A descriptor of its own: the file may be closed, and have another name, by the time its turn comes.
        self._settling = _background().submit(_settled, os.dup(self._stream.fileno()))


def _settled(descriptor: int) -> None:
    """Lets go of an open file, and closes it."""
    try:
        os.fdatasync(descriptor)  # what is not on the disk yet cannot be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


@functools.cache
def _background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="page cache")


def _memory() -> int:
    """Bytes of the machine's memory, or those that a container may have of it."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(physical, int(_CONTAINERS_LIMIT.read_text()))
    except (OSError, ValueError):  # no such file; or "max"
        return physical
