"""A child process that parses untrusted items within limits, and writes a reply in JSON after each of them.

On Linux, ``RLIMIT_DATA`` limits memory; on other systems only time is limited.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import json
import os
import resource
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from podline.base import entry_points
from podline.base.errors import PodlineError, one_line
from podline.data.sandbox.isolation import isolate
from podline.data.sandbox.limits import ParseLimits

READY, BEGIN, VALUE, MEMORY, ERROR, SYSTEM, OTHER = "ready", "begin", "value", "memory", "error", "system", "other"
"""Kinds of messages: the child has started, an item has new limits, and five outcomes of an item."""

_OPENCV_NO_MEMORY = -4  # cv2.Error.StsNoMem
_DATA = getattr(resource, "RLIMIT_DATA", None) if sys.platform == "linux" else None
_MOST = resource.getrlimit(_DATA)[1] if _DATA is not None else resource.RLIM_INFINITY


class _Guard:
    """The limits of the current item; SIGPROF ends the process by CPU time, SIGALRM by wall-clock time."""

    def __init__(self, replies: int) -> None:
        self._replies = replies
        self._factor, self._used = 1.0, 0

    def reply(self, *message: Any) -> None:
        left = memoryview(json.dumps(message).encode() + b"\n")
        while left:
            left = left[os.write(self._replies, left) :]

    def new_batch(self, factor: float) -> None:
        self._factor, self._used = factor, _data_bytes()

    def begin(self, limits: ParseLimits, what: str) -> None:
        if what:
            self._used = _data_bytes()
        most = limits.times(self._factor)
        self.reply(BEGIN, *most, what)
        self.set(most)

    def set(self, limits: ParseLimits) -> None:
        signal.setitimer(signal.ITIMER_REAL, limits.patience)
        signal.setitimer(signal.ITIMER_PROF, limits.seconds)
        _limit_data(self._used + limits.memory)

    def end(self) -> None:
        _limit_data(None)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


_guard: _Guard | None = None


def begin(limits: ParseLimits, what: str = "") -> None:
    """Set new limits for the rest of the current item; a parser calls this when it knows the item's size.

    Args:
        limits: the limits; they are multiplied by the factor of the item.
        what: name of the file being read, for errors; empty keeps the previous name. With a name, memory that is
            already in use no longer counts.
    """
    if _guard is not None:  # otherwise this process is not a child
        _guard.begin(limits, what)


def serve(connection: int, replies: int) -> None:
    """Answer the parent's requests until it closes the connection; runs in the child.

    Args:
        connection: the descriptor of the connection to the parent, which gets an empty message after each request.
        replies: the descriptor of the file for replies. Replies by messages took a quarter of a small image's time.
    """
    global _guard  # noqa: PLW0603 (one process, one guard)
    isolate()
    faulthandler.enable(all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent = Connection(connection)
    with contextlib.suppress(EOFError, BrokenPipeError):
        maker, arguments = parent.recv()
        parse = entry_points.load(maker)(*arguments)
        _guard = _Guard(replies)
        _guard.reply(READY)
        while True:
            items, limits, factor = parent.recv()
            _guard.new_batch(factor)
            most = limits.times(factor)
            for item in items:
                _guard.set(most)
                try:
                    _guard.reply(VALUE, parse(item))
                except Exception as error:
                    _guard.reply(*_refused(error))
            _guard.end()
            parent.send_bytes(b"")


def _refused(error: Exception) -> tuple[Any, ...]:
    if lacks_memory(error):
        return (MEMORY,)
    if isinstance(error, PodlineError):
        return ERROR, error.to_json()
    if isinstance(error, OSError):
        if error.errno is None:  # a library raised it, such as Pillow or gzip
            return SYSTEM, one_line(error)
        return SYSTEM, error.errno, error.strerror, error.filename and str(error.filename)
    return OTHER, f"{type(error).__name__}: {one_line(error)}"


def lacks_memory(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes says, by class or code, that memory is lacking."""
    opencv = getattr(sys.modules.get("cv2"), "error", ())
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if isinstance(error, opencv) and getattr(error, "code", None) == _OPENCV_NO_MEMORY:
            return True
        error = error.__cause__
    return False


def _limit_data(limit: int | None) -> None:
    """Limit the process's data to some bytes; None sets the limit inherited from the parent."""
    if _DATA is not None:
        wanted = _MOST if limit is None else limit if _MOST == resource.RLIM_INFINITY else min(limit, _MOST)
        resource.setrlimit(_DATA, (wanted, _MOST))


def _data_bytes() -> int:
    if _DATA is None:
        return 0
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))
