"""Shared file locks that keep a data set or a run from being deleted while a process uses it.

Whoever works on something holds a shared ``flock`` on a file that stands for it; whoever deletes it holds the same
alone, and lets it be if that cannot be had at once. The files are empty and stay. Those of a store's data sets and runs
are in its scratch folder on this machine. So in a folder they tell of every process that has the folder, also on other
machines if the file system's locks reach them; of a bucket they tell of this machine's processes alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator, Iterable
from pathlib import Path

from podline.store import digests
from podline.store.contract import Store, explained

_held: dict[Path, int] = {}


@contextlib.contextmanager
def using(store: Store, folders: Iterable[str]) -> Generator[None, None, None]:
    """Keeps data sets and runs, by their names in the store, from being deleted while the body runs.

    Where one is being deleted just now, its end is waited for.

    Raises:
        StoreError: the scratch folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        for folder in sorted(set(folders)):
            with explained("write to the store", store.uri):
                descriptor = _locked(_lock_of(store, folder), fcntl.LOCK_SH)
            stack.callback(os.close, descriptor)
        yield


@contextlib.contextmanager
def alone(store: Store, folder: str) -> Generator[bool, None, None]:
    """Tells whether nobody uses a data set or a run, and if so keeps it from being used while the body runs.

    Raises:
        StoreError: the scratch folder cannot be written.
    """
    with alone_at(_lock_of(store, folder)) as free:
        yield free


@contextlib.contextmanager
def alone_at(lock: Path) -> Generator[bool, None, None]:
    """Like :func:`alone`, by the file that is locked."""
    with explained("write", lock):
        try:
            descriptor = _locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            descriptor = None
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def hold(lock: Path) -> None:
    """Keeps what a file stands for until this process ends, or until :func:`release`.

    Raises:
        StoreError: the file cannot be written.
    """
    if lock not in _held:
        with explained("write", lock):
            _held[lock] = _locked(lock, fcntl.LOCK_SH)


def release() -> None:
    """Lets go of all that this process holds."""
    while _held:
        os.close(_held.popitem()[1])


def _lock_of(store: Store, folder: str) -> Path:
    return store.scratch / "uses" / digests.of_bytes(folder.encode())[:32]


def _locked(lock: Path, kind: int) -> int:
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, kind)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
