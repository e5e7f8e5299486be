"""List the names that running processes use: data sets, runs, cached copies.

A process lists its names in its own file, a *lease*, which it keeps locked (:mod:`podline.store.locks`) while it uses
them. The lease of a killed process is unlocked, so it does not count. A guard lock for the folder is held while leases
are read or written.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import IO, Self

from podline.base.progress import alive
from podline.store.locks import locked

_GUARD, _LEASE = "guard", ".lease"
_SHARED, _ALONE = "+", "-"
_POLL_SECONDS = 0.2


class Lease(contextlib.ExitStack):
    """The names in a folder that one part of this process uses until it closes the lease.

    Threads may add names concurrently.

    Attributes:
        names: the names.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.names: set[str] = set()
        self._file: IO[bytes] | None = None

    def share(self, names: Iterable[str]) -> Self:
        """Add names for shared use; wait while another process uses any of them exclusively.

        Raises:
            OSError: the folder cannot be written.
        """
        asked = set(names)
        while wanted := asked - self.names:
            with guarded(self._folder):
                if not wanted & {name for name, alone in names_in_use(self._folder).items() if alone}:
                    self.add(wanted)
                    break
            alive()
            time.sleep(_POLL_SECONDS)
        return self

    def take(self, names: Iterable[str]) -> Self:
        """Add for exclusive use those names that no process uses now.

        Raises:
            OSError: the folder cannot be written.
        """
        with guarded(self._folder):
            self.add(set(names) - names_in_use(self._folder).keys(), _ALONE)
        return self

    def add(self, names: Collection[str], how: str = _SHARED) -> None:
        """Add names without a check; the caller must hold the guard lock."""
        if names and self._file is None:
            path = self._folder / f"{uuid.uuid4().hex}{_LEASE}"
            self._file = self.enter_context(locked(path))
            self.callback(_remove, path)
        if names and self._file is not None:
            self._file.write("".join(f"{how}{name}\n" for name in names).encode())
        self.names.update(names)

    def close(self) -> None:
        """Release all names."""
        super().close()
        self.names.clear()
        self._file = None


def guarded(folder: Path) -> contextlib.AbstractContextManager[object]:
    """Return a context that holds the guard lock of a folder of leases, which must exist."""
    return locked(folder / _GUARD)


def names_in_use(folder: Path) -> dict[str, bool]:
    """Return each name that a running process uses → whether exclusively; the caller must hold the guard lock.

    Raises:
        OSError: a lease cannot be read.
    """
    found: dict[str, bool] = {}
    for path in folder.glob(f"*{_LEASE}"):
        with locked(path, wait=False) as ended:
            if ended:
                _remove(path)
                continue
        with contextlib.suppress(FileNotFoundError):  # its process ended meanwhile
            found |= {line[1:]: line.startswith(_ALONE) for line in path.read_text().splitlines()}
    return found


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # it belongs to another user, or another process removes it later
        path.unlink()


_leases: dict[Path, Lease] = {}


def hold(path: Path) -> None:
    """Use a name in a folder of leases, given as ``folder/name``, until this process ends.

    Raises:
        OSError: the folder cannot be written.
    """
    _leases.setdefault(path.parent, Lease(path.parent)).share([path.name])
