"""Asks what the operating system's page cache can hold, and drops a file's pages from it, to measure the disk."""

from __future__ import annotations

import os
from pathlib import Path

from podline.store.contract import explained

_CONTAINERS_LIMIT = Path("/sys/fs/cgroup/memory.max")


def fits_in_memory(size: int) -> bool:
    """Return whether ``size`` bytes can stay in the page cache: half of memory, or of what a container may have."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        memory = min(physical, int(_CONTAINERS_LIMIT.read_text()))
    except (OSError, ValueError):  # no such file; or "max"
        memory = physical
    return size <= memory // 2


def drop_pages(path: Path) -> None:
    """Drop a file's pages; where there is no posix_fadvise(2), and of what a process has mapped, they stay.

    Raises:
        StoreError: it cannot be read.
    """
    with explained("read", path), path.open("rb") as stream:
        os.fdatasync(stream.fileno())  # what is not on the disk yet cannot be dropped
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
