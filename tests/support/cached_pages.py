"""What the kernel holds of a file, asked of the kernel itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podline.store.page_cache import drop_pages


def is_cached(path: Path, place: int = 0) -> bool:
    """Whether a page of a file is in memory: a read that must not wait for the disk finds it, or does not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(16)], place, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def forget(path: Path) -> None:
    """Has the kernel forget a file; skips the test on a file system that cannot, or cannot be asked about it."""
    drop_pages(path)
    try:
        forgets = not is_cached(path)
    except OSError as error:
        pytest.skip(f"the file system of {path} does not tell what is cached: {error.strerror}")
    if not forgets:
        pytest.skip(f"the file system of {path} has no disk to read from again")
