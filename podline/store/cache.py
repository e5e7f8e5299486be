"""A shared cache of objects with a size limit; the least recently used goes first.

Each copy is a file named by a hash of its key, which says which bytes it has (bucket, name, generation), with two empty
lock files. Whoever uses a copy holds a shared ``flock`` on the one until the process ends, however it ends; whoever
looks at it, fetches or removes it holds the other meanwhile, alone. So no copy is removed while it is used, two
processes never fetch the same one twice, and what a killed process left half done is known by nobody holding a lock.
A third lock, one for the folder, is held for as long as it takes to list the copies, to begin one or to name it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Generator
from pathlib import Path

from podline.errors import StoreError
from podline.store.contract import explained

_HALF, _USE, _WORK = ".half", ".use", ".work"
_ROOM = "room"


class Cache:
    """A cache folder, as one process sees it; any number of threads may use it at once."""

    def __init__(self, folder: Path, limit: int) -> None:
        """A cache.

        Args:
            folder: made if it is not there.
            limit: bytes that all copies together may have.
        """
        self._copies, self._locks = folder / "objects", folder / "locks"
        self._limit = limit
        self._held: dict[str, int] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        with explained("write to the cache", folder):
            self._copies.mkdir(parents=True, exist_ok=True)
            self._locks.mkdir(parents=True, exist_ok=True)

    def get(self, key: str, size: int, is_whole: Callable[[Path], bool], fetch: Callable[[Path], None]) -> Path:
        """A copy, which stays for as long as this process lives.

        Args:
            key: says which bytes it has.
            size: how many.
            is_whole: looks at a copy that is there; asked once in a process.
            fetch: writes the copy into a file that is there and has its size.

        Raises:
            StoreError: the cache cannot be written, or what is in use leaves no room for the copy.
        """
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        copy = self._copies / name
        with self._guard:
            turn = self._turns.setdefault(name, threading.Lock())
        with turn:
            if name in self._held:
                return copy
            with self._locked(f"{name}{_WORK}", fcntl.LOCK_EX):
                if not (copy.is_file() and copy.stat().st_size == size and is_whole(copy)):
                    self._fetch(copy, size, fetch)
                with explained("write to the cache", copy):
                    os.utime(copy)  # used now
                self._held[name] = self._lock(f"{name}{_USE}", fcntl.LOCK_SH)
        return copy

    def release(self) -> None:
        """Says that this process uses none of its copies any more."""
        with self._guard:
            for lock in self._held.values():
                os.close(lock)
            self._held.clear()

    def _fetch(self, copy: Path, size: int, fetch: Callable[[Path], None]) -> None:
        half = copy.with_suffix(_HALF)
        with explained("write to the cache", half):
            # Files come and go under this lock alone: whoever makes room finds those that it has listed.
            with self._locked(_ROOM, fcntl.LOCK_EX):
                copy.unlink(missing_ok=True)
                self._remove_until(self._limit - size, copy.name)
                # Its size counts from now on, for those who make room meanwhile.
                with half.open("wb") as stream:
                    stream.truncate(size)
            try:
                fetch(half)
                with self._locked(_ROOM, fcntl.LOCK_EX):
                    half.rename(copy)
            except BaseException:
                with self._locked(_ROOM, fcntl.LOCK_EX):
                    half.unlink(missing_ok=True)
                raise

    def _lock(self, name: str, kind: int) -> int:
        """A lock, as a file descriptor; it is held until that is closed.

        Raises:
            BlockingIOError: ``kind`` says not to wait, and somebody has it.
        """
        with explained("write to the cache", self._locks):
            descriptor = os.open(self._locks / name, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, kind)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @contextlib.contextmanager
    def _locked(self, name: str, kind: int) -> Generator[None, None, None]:
        descriptor = self._lock(name, kind)
        try:
            yield
        finally:
            os.close(descriptor)

    def _remove_until(self, most: int, wanted: str) -> None:
        """Removes copies that nobody uses, the least recently used first, until ``most`` bytes are left or fewer."""
        with os.scandir(self._copies) as found:
            files = [(entry.stat(), entry.name) for entry in found]
        total = sum(facts.st_size for facts, _ in files)
        # What was left half done goes whether there is room or not.
        spare = files if total > most else [(facts, name) for facts, name in files if name.endswith(_HALF)]
        for facts, name in sorted(spare, key=lambda pair: pair[0].st_mtime_ns):
            path = self._copies / name
            if (total > most or path.suffix == _HALF) and path.stem != wanted and self._removed(path):
                total -= facts.st_size
        if total > max(most, 0) or most < 0:
            needed = self._limit - most + total
            raise StoreError(
                f"the cache {self._copies.parent} may have {self._limit:,} bytes vs {needed:,} that are needed at "
                "once; raise the setting store.cache_limit"
            )

    def _removed(self, path: Path) -> bool:
        """Removes a file unless somebody uses it or makes it."""
        at_once = fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            with self._locked(f"{path.stem}{_WORK}", at_once), self._locked(f"{path.stem}{_USE}", at_once):
                path.unlink(missing_ok=True)
        except BlockingIOError:
            return False
        return True
