"""Drops a file's pages from the operating system's page cache.

A data set that memory holds is best left there: who reads it next need not wait for the disk. One that is much larger
drives out everything else, and itself, before anybody comes back to its beginning. Such a one is let go of shard by
shard as it is read.

See ``POSIX_FADV_DONTNEED`` in posix_fadvise(2). Where there is no such call, everything stays.
"""

from __future__ import annotations

import os
from pathlib import Path

from podline.settings import load
from podline.store.contract import explained

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


def _settled(descriptor: int) -> None:
    """Lets go of an open file, and closes it."""
    try:
        os.fdatasync(descriptor)  # what is not on the disk yet cannot be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _memory() -> int:
    """Bytes of the machine's memory, or those that a container may have of it."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(physical, int(_CONTAINERS_LIMIT.read_text()))
    except (OSError, ValueError):  # no such file; or "max"
        return physical
