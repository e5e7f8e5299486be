"""A cache of objects that processes share, with a size limit; the least recently used copy is removed first.

Each copy is a file named by a hash of its key (bucket, name, generation). Until a process ends, its lease
(:mod:`podline.store.uses`) lists the copies that it uses. The process locks a copy while it checks or fetches the copy.
So no copy in use is removed, and two processes never fetch the same copy. An incomplete copy that no lease lists was
left by a killed process. Copies are counted, created, renamed and removed under the guard lock of the leases.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from podline.base.errors import StoreError
from podline.store import digests
from podline.store.contract import BUCKET_SCHEME, explained
from podline.store.locks import locked
from podline.store.uses import Lease, guarded, names_in_use

_HALF, _WORK = ".half", ".work"
_TOTAL = "total"
# A full cache is emptied to this share of its limit, so that not every new copy has to list all others.
_EMPTIED = 0.95


def scratch_of(uri: str, cache: str) -> Path:
    """Return the folder on this machine for unpublished files of a store that cannot hold them itself."""
    # The readable prefix is for people; the hash distinguishes stores with similar names.
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", uri.removeprefix(BUCKET_SCHEME)).lstrip("_")
    return Path(cache).expanduser().absolute() / "stores" / f"{readable}-{digests.of_bytes(uri.encode())[:8]}"


class Cache:
    """One process's access to a cache folder; safe for several threads."""

    def __init__(self, folder: Path, limit: int) -> None:
        """Open a cache.

        Args:
            folder: the folder, created if missing.
            limit: largest total size of all copies, in bytes.
        """
        self._copies, self._locks = folder / "objects", folder / "locks"
        self._limit = limit
        self._lease, self._names = Lease(self._locks), set[str]()
        self._counted = False
        with explained("write to the cache", folder):
            self._copies.mkdir(parents=True, exist_ok=True)
            self._locks.mkdir(parents=True, exist_ok=True)

    def get(self, key: str, size: int, is_whole: Callable[[Path], bool], fetch: Callable[[Path], None]) -> Path:
        """Return the path of an object's copy, which exists until this process ends or calls :meth:`release`.

        Args:
            key: identifies the content.
            size: number of bytes.
            is_whole: verifies an existing copy; called at most once per process and key.
            fetch: writes the content into an existing file of this size.

        Raises:
            StoreError: the cache cannot be written, or copies in use leave too little space.
        """
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        copy, work = self._copies / name, self._locks / f"{name}{_WORK}"
        if name in self._names:
            return copy
        with explained("write to the cache", copy), locked(work):
            if name not in self._names:  # no other thread was faster
                with guarded(self._locks):
                    self._lease.add([name])
                if not (copy.is_file() and copy.stat().st_size == size and is_whole(copy)):
                    self._fetch(copy, size, fetch)
                os.utime(copy)  # records the use
                self._names.add(name)
            work.unlink()
        return copy

    def release(self) -> None:
        """Release all copies, which other processes may remove from then on."""
        self._lease.close()
        self._names.clear()
        self._counted = False

    def _fetch(self, copy: Path, size: int, fetch: Callable[[Path], None]) -> None:
        half = copy.with_suffix(_HALF)
        with guarded(self._locks):
            copy.unlink(missing_ok=True)
            self._make_room(size)
            # The file's size counts from now on when another process frees space.
            with half.open("wb") as stream:
                stream.truncate(size)
        try:
            fetch(half)
            with guarded(self._locks):
                half.rename(copy)
        except BaseException:
            half.unlink(missing_ok=True)
            raise

    def _make_room(self, size: int) -> None:
        """Add ``size`` to the stored total; first recount and make room, in the first call or if the limit is exceeded.

        After a failure the stored total may be too high, but never too low.
        """
        total = self._locks / _TOTAL
        try:
            found = int(total.read_text())
        except (FileNotFoundError, ValueError):
            found = self._limit
        if not self._counted or found + size > self._limit:
            found = self._remove_until(self._limit - size)
            self._counted = True
        total.write_text(str(found + size))

    def _remove_until(self, most: int) -> int:
        """Remove unused copies: incomplete ones and, if there are more than ``most`` bytes, the least recently used.

        Returns:
            The total size of the copies that are left, in bytes.

        Raises:
            StoreError: the copies in use need more than ``most`` bytes.
        """
        in_use = names_in_use(self._locks)
        with os.scandir(self._copies) as found:
            files = [(entry.stat(), Path(entry.path)) for entry in found]
        total = sum(facts.st_size for facts, _ in files)
        enough = most * _EMPTIED if total > most else total
        for facts, path in sorted(files, key=lambda pair: pair[0].st_mtime_ns):
            # Incomplete copies of killed processes are always removed.
            if (total > enough or path.suffix == _HALF) and path.stem not in in_use:
                path.unlink(missing_ok=True)
                total -= facts.st_size
        if total > most:
            needed = self._limit - most + total
            raise StoreError(
                f"the cache {self._copies.parent} needs {needed:,} bytes at once, but its limit is {self._limit:,}; "
                "raise the setting store.cache_limit"
            )
        return total
