"""A shared cache of objects with a size limit; the least recently used copy is removed first.

Each copy is a file named by a hash of its key (bucket, name, generation). It has two locks
(:mod:`podline.store.locks`). Processes that use the copy share the first lock until they end. A process that checks,
fetches or removes the copy holds the second one exclusively. So no copy in use is removed, two processes never fetch
the same copy, and an incomplete copy without a lock is a leftover. A third lock, for the folder, is held while copies
are listed, created or renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from podline.errors import StoreError
from podline.store.contract import explained
from podline.store.locks import locked

_HALF, _USE, _WORK = ".half", ".use", ".work"
_ROOM = "room"


class Cache:
    """A cache folder in one process; any number of threads may use it at once."""

    def __init__(self, folder: Path, limit: int) -> None:
        """Open a cache.

        Args:
            folder: the folder, created if missing.
            limit: largest total number of bytes of all copies.
        """
        self._copies, self._locks = folder / "objects", folder / "locks"
        self._limit = limit
        self._held, self._names = contextlib.ExitStack(), set[str]()
        self._turns: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        with explained("write to the cache", folder):
            self._copies.mkdir(parents=True, exist_ok=True)
            self._locks.mkdir(parents=True, exist_ok=True)

    def get(self, key: str, size: int, is_whole: Callable[[Path], bool], fetch: Callable[[Path], None]) -> Path:
        """Return a copy, which is kept while this process runs.

        Args:
            key: identifies the bytes.
            size: number of bytes.
            is_whole: verifies an existing copy; called once per process.
            fetch: writes the copy into an existing file of its size.

        Raises:
            StoreError: the cache cannot be written, or copies in use leave too little space.
        """
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        copy = self._copies / name
        with self._guard:
            turn = self._turns.setdefault(name, threading.Lock())
        with turn:
            if name in self._names:
                return copy
            with explained("write to the cache", copy), locked(self._lock(name, _WORK)):
                if not (copy.is_file() and copy.stat().st_size == size and is_whole(copy)):
                    self._fetch(copy, size, fetch)
                os.utime(copy)  # records the use
                self._held.enter_context(locked(self._lock(name, _USE), shared=True))
                self._names.add(name)
        return copy

    def release(self) -> None:
        """Release all copies: this process no longer uses them."""
        with self._guard:
            self._held.close()
            self._names.clear()

    def _fetch(self, copy: Path, size: int, fetch: Callable[[Path], None]) -> None:
        half, room = copy.with_suffix(_HALF), self._lock(_ROOM)
        # Files are only added and removed under this lock, so listed files exist while space is freed.
        with locked(room):
            copy.unlink(missing_ok=True)
            self._remove_until(self._limit - size, copy.name)
            # Its size counts from now on for processes that free space.
            with half.open("wb") as stream:
                stream.truncate(size)
        try:
            fetch(half)
            with locked(room):
                half.rename(copy)
        except BaseException:
            with locked(room):
                half.unlink(missing_ok=True)
            raise

    def _lock(self, name: str, kind: str = "") -> Path:
        return self._locks / f"{name}{kind}"

    def _remove_until(self, most: int, wanted: str) -> None:
        """Remove unused copies, least recently used first, until at most ``most`` bytes are left."""
        with os.scandir(self._copies) as found:
            files = [(entry.stat(), entry.name) for entry in found]
        total = sum(facts.st_size for facts, _ in files)
        # Incomplete leftovers are always removed.
        spare = files if total > most else [(facts, name) for facts, name in files if name.endswith(_HALF)]
        for facts, name in sorted(spare, key=lambda pair: pair[0].st_mtime_ns):
            path = self._copies / name
            if (total > most or path.suffix == _HALF) and path.stem != wanted and self._removed(path):
                total -= facts.st_size
        if total > max(most, 0) or most < 0:
            needed = self._limit - most + total
            raise StoreError(
                f"the cache {self._copies.parent} may have {self._limit:,} bytes, but {needed:,} are needed at once; "
                "raise the setting store.cache_limit"
            )

    def _removed(self, path: Path) -> bool:
        """Remove a file unless a process uses or writes it."""
        with contextlib.ExitStack() as stack:
            for kind in (_WORK, _USE):
                if stack.enter_context(locked(self._lock(path.stem, kind), wait=False)) is None:
                    return False
            path.unlink(missing_ok=True)
        return True
