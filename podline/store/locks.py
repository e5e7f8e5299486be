"""Lock files between processes, on one machine and in its containers.

A lock is a ``flock`` on a small file. The kernel releases it when the holder ends, so a leftover file locks nothing.
Processes that see the same file exclude each other, whatever their host names and process ids: in containers, and on
several machines if the file system forwards locks (NFS does).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO

from podline.base.figures import duration
from podline.base.plain import plain
from podline.base.progress import Reporter

_POLL_SECONDS = 0.5
# Seconds between two progress events of a waiting process, and between its log lines. The limit for a hang on a node
# (tpu.limits.worker) must be longer than the latter. Log lines come at once, after 30 s, a minute, and so on.
_BEAT_SECONDS, _FIRST_NEWS_SECONDS, _NEWS_SECONDS = 10.0, 30.0, 600.0
_HOLDER_BYTES = 300
_SUFFIX = ".lock"


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False, wait: bool = True) -> Generator[IO[bytes] | None, None, None]:
    """Hold a lock while the body runs.

    Args:
        path: the lock file, created for all users of the machine; its folder must exist. A link, or a file with a
            second hard link, is refused, since any user can create one in a folder such as /tmp.
        shared: whether other processes may share the lock.
        wait: whether to wait until the lock is free.

    Yields:
        The open file; None if another process holds the lock and ``wait`` is false.

    Raises:
        OSError: the file cannot be opened or locked.
    """
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    while True:
        with _open(path) as stream:
            free = _flock(stream, kind)
            if not free or _is_still_there(stream.fileno(), path):
                yield stream if free else None
                return


@contextlib.contextmanager
def turn(path: Path, holder: str, waits: Callable[[str, float], None]) -> Generator[bool, None, None]:
    """Hold a lock while the body runs; the holder's description is written into the file.

    Args:
        path: the lock file.
        holder: description of this process's work, shown by waiting processes.
        waits: called twice a second while another process holds the lock, with its description and the seconds so far.

    Yields:
        Whether this process had to wait.

    Raises:
        OSError: the file cannot be opened or locked.
    """
    begun, waited = time.monotonic(), False
    while True:
        with locked(path, wait=False) as file:
            if file is not None:
                since = datetime.now().astimezone().strftime("%d %B %H:%M")
                file.truncate()
                file.write(f"{holder} (process {os.getpid()} on {socket.gethostname()}, since {since})".encode())
                yield waited
                return
        waited = True
        waits(_holder(path), time.monotonic() - begun)
        time.sleep(_POLL_SECONDS)


class Waiting:
    """Reports at growing intervals that this process waits for another one."""

    def __init__(
        self, reporter: Reporter, why: str = "another process does the same work; waiting until it ends"
    ) -> None:
        self._reporter, self._why = reporter, why
        self._beat = self._news = 0.0

    def __call__(self, holder: str, seconds: float) -> None:
        """Report the holder of a lock and the seconds waited so far, unless the last report is recent."""
        if seconds >= self._news:
            so_far = f", for {duration(seconds)} so far" if seconds >= 1 else ""
            self._reporter.log(f"{self._why}{so_far}: {holder}")
            self._news = seconds + min(max(seconds, _FIRST_NEWS_SECONDS), _NEWS_SECONDS)
        if seconds >= self._beat:
            self._reporter.waiting(f"{self._why}: {holder}")
            self._beat = seconds + _BEAT_SECONDS


@contextlib.contextmanager
def temporary_folder(parent: Path, label: str) -> Generator[Path, None, None]:
    """Create a folder below ``parent``, and delete it after the body; a lock beside it shows that it is in use.

    Raises:
        OSError: the folder cannot be created.
    """
    folder = parent / f"{label}~{uuid.uuid4().hex[:12]}"
    lock = _lock_of(folder)
    with locked(lock):
        try:
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # the next sweep removes it
                lock.unlink()


def left_behind(parent: Path) -> Iterator[Path]:
    """Yield the temporary folders of killed processes below ``parent``; hold the lock of each until the next one."""
    names = set[str]()
    with contextlib.suppress(OSError):  # not there, or another user's
        names = {each.name.removesuffix(_SUFFIX) for each in parent.iterdir()}
    for folder in (parent / name for name in sorted(names)):
        lock = _lock_of(folder)
        with contextlib.suppress(OSError), locked(lock, wait=False) as free:  # leftovers of other users stay
            if free:
                yield folder
                lock.unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _SUFFIX)


def _open(path: Path) -> IO[bytes]:
    """Open a lock file for reading and writing; create it if missing.

    The kernel refuses O_CREAT on another user's file in a folder like /tmp (``fs.protected_regular``), so an existing
    file is opened without it.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.fdopen(os.open(path, flags), "r+b", buffering=0)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(descriptor, 0o666)  # independent of the umask
            return os.fdopen(descriptor, "r+b", buffering=0)


def _flock(stream: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(stream, kind)
    except BlockingIOError:
        return False
    return True


def _is_still_there(descriptor: int, path: Path) -> bool:
    """Return whether a path still refers to the open file, which the previous holder may have deleted.

    Raises:
        OSError: the path is no regular file, or the file has a second hard link.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise OSError(errno.EPERM, "expected a regular file with one hard link; delete it", str(path))
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(found, path.lstat())
    return False


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        if text := plain(path.read_bytes()[:_HOLDER_BYTES].decode(errors="replace")).strip():
            return text
    return "another process"
