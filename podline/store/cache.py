"""A shared cache of objects with a size limit; the least recently used copy is removed first.

Each copy is a file named by a hash of its key (bucket, name, generation). A process that uses a copy lists it in its
lease (:mod:`podline.store.uses`) until it ends, and locks the copy while it checks or fetches it. So no copy in use is
removed, two processes never fetch the same copy, and an incomplete copy that no lease names is a leftover. Copies are
counted, created, renamed and removed under the leases' guard lock.
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
# A full cache is emptied to this share of its limit, so that not every further copy lists all of them.
_EMPTIED = 0.95


def scratch_of(uri: str, cache: str) -> Path:
    """Return the folder on this machine for the unpublished files of a store that cannot hold them itself."""
    # The readable part is for people; the hash separates stores with similar names.
    looks = re.sub(r"[^A-Za-z0-9.-]+", "_", uri.removeprefix(BUCKET_SCHEME)).lstrip("_")
    return Path(cache).expanduser().absolute() / "stores" / f"{looks}-{digests.of_bytes(uri.encode())[:8]}"


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
        self._lease, self._names = Lease(self._locks), set[str]()
        self._counted = False
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
        """Release all copies: this process no longer uses them."""
        self._lease.close()
        self._names.clear()
        self._counted = False

    def _fetch(self, copy: Path, size: int, fetch: Callable[[Path], None]) -> None:
        half = copy.with_suffix(_HALF)
        with guarded(self._locks):
            copy.unlink(missing_ok=True)
            self._make_room(size)
            # Its size counts from now on for processes that free space.
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
        """Count ``size`` more bytes; if that exceeds the limit, list the copies and remove some.

        The stored total may be too high after a failure, never too low.
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
        """Remove unused copies, least recently used first, if there are more than ``most`` bytes; return their sum."""
        in_use = names_in_use(self._locks)
        with os.scandir(self._copies) as found:
            files = [(entry.stat(), Path(entry.path)) for entry in found]
        total = sum(facts.st_size for facts, _ in files)
        enough = most * _EMPTIED if total > most else total
        for facts, path in sorted(files, key=lambda pair: pair[0].st_mtime_ns):
            # Incomplete leftovers are always removed.
            if (total > enough or path.suffix == _HALF) and path.stem not in in_use:
                path.unlink(missing_ok=True)
                total -= facts.st_size
        if total > most:
            needed = self._limit - most + total
            raise StoreError(
                f"the cache {self._copies.parent} may have {self._limit:,} bytes, but {needed:,} are needed at once; "
                "raise the setting store.cache_limit"
            )
        return total
