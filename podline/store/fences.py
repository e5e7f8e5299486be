"""Register the folders that this process writes under a lease, and the object that checks the lease at each write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import Protocol


class Fence(Protocol):
    """Publishes and deletes names below one folder, if this process still holds the folder's lease."""

    def publish(self, source: Path, name: str, *, replace: bool, flush: bool) -> None:
        """Publish a file; see :meth:`podline.store.contract.Store.publish_file`."""
        ...

    def delete(self, name: str, version: str) -> None:
        """Delete a name; see :meth:`podline.store.contract.Store.delete`."""
        ...


# Keys: process id (a forked child does not hold its parent's lease), root and folder.
_fences: dict[tuple[int, str, str], Fence] = {}


@contextlib.contextmanager
def put(uri: str, folder: str, fence: Fence) -> Generator[None, None, None]:
    """Route all writes of this process below a folder of a store through a fence while the body runs."""
    stand(uri, folder, fence)
    try:
        yield
    finally:
        del _fences[_key(uri, folder)]


def stand(uri: str, folder: str, fence: Fence) -> None:
    """Route all writes of this process below a folder of a store through a fence from now on."""
    _fences[_key(uri, folder)] = fence


def _key(uri: str, folder: str) -> tuple[int, str, str]:
    return os.getpid(), uri, f"{folder}/"


def over(uri: str, name: str) -> Fence | None:
    """Return the fence of the folder that contains a name, or None."""
    held = ((key, fence) for key, fence in list(_fences.items()) if key[:2] == (os.getpid(), uri))
    return next((fence for (_, _, folder), fence in held if name.startswith(folder)), None)
