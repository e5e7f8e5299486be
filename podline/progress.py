"""Progress events of a stage: JSON lines from a child process, which its parent shows as bars or logs.

A stage function gets a :class:`Reporter` and never prints. The events are:

======== ==================================================================================================
event    fields
======== ==================================================================================================
start    ``stage``; sent by the supervisor before it searches for an earlier result
progress ``stage``, ``done``, ``total``, ``unit``, ``metrics`` (name → number), ``note`` (the place of the work, if it
         is remarkable)
log      ``stage``, ``level`` (``info`` or ``warning``), ``message``
pace     ``stage``, ``seconds``: the next event is due in about this time; null means unknown. For the supervisor only
alive    ``stage``: it works, although it has no progress to report. For the supervisor only
waiting  ``stage``, ``message``: another process blocks the work; this time counts towards no limit
result   ``stage``, ``result`` (the stage's result as JSON); the last line of a successful child
error    ``stage``, ``error`` (see :meth:`podline.errors.PodlineError.to_json`); the last line of a failed child
======== ==================================================================================================
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from podline.plain import plain

Event = dict[str, Any]
Listener = Callable[[Event], None]


def ignored(_event: Event) -> None:
    """Do nothing; a listener."""


T = TypeVar("T")
_REPORT_SECONDS = 1.0
_terminal: ContextVar[Listener] = ContextVar("terminal", default=ignored)


class Reporter:
    """Turns calls into events and passes each to one listener."""

    def __init__(self, stage: str, listener: Listener) -> None:
        self.stage = stage
        self._listener = listener
        self._alive = -math.inf

    def progress(
        self, done: int, total: int, unit: str, metrics: Mapping[str, float] | None = None, note: str = ""
    ) -> None:
        """Report that ``done`` of ``total`` ``unit``s are finished; every call is also a heartbeat."""
        self._listener(
            {
                "event": "progress",
                "stage": self.stage,
                "done": int(done),
                "total": int(total),
                "unit": unit,
                "metrics": {name: float(value) for name, value in (metrics or {}).items()},
                **({"note": note} if note else {}),
            }
        )

    def pace(self, seconds: float | None) -> None:
        """Announce the next event in about ``seconds``; None means unknown."""
        self._listener({"event": "pace", "stage": self.stage, "seconds": seconds})

    def alive(self) -> None:
        """Report, once a second at most, that the stage works, which ends its start-up and is no silence."""
        if time.monotonic() >= self._alive + _REPORT_SECONDS:
            self._alive = time.monotonic()
            self._listener({"event": "alive", "stage": self.stage})

    def waiting(self, message: str) -> None:
        """Report that the work has not begun, because another process blocks it."""
        self._listener({"event": "waiting", "stage": self.stage, "message": plain(message)})

    def log(self, message: str) -> None:
        """Write a line to the run's log."""
        self._log("info", message)

    def warn(self, message: str) -> None:
        """Write a warning to the run's log; the stage continues."""
        self._log("warning", message)

    def _log(self, level: str, message: str) -> None:
        self._listener({"event": "log", "stage": self.stage, "level": level, "message": plain(message)})


_current: ContextVar[Reporter | None] = ContextVar("current", default=None)


@contextlib.contextmanager
def reported_by(reporter: Reporter) -> Iterator[None]:
    """Report the steps of a stage's work in the body; see :func:`counted` and :func:`alive`."""
    token = _current.set(reporter)
    try:
        yield
    finally:
        _current.reset(token)


def counted(items: Iterable[T], total: int, unit: str) -> Iterator[T]:
    """Yield items, and report every second how many were yielded, to the reporter of :func:`reported_by`."""
    reporter, due = _current.get(), time.monotonic() + _REPORT_SECONDS
    for done, item in enumerate(items, 1):
        yield item
        if reporter and time.monotonic() >= due:
            reporter.progress(done, total, unit)
            due = time.monotonic() + _REPORT_SECONDS


def alive() -> None:
    """Report that this thread works for a stage, so that it does not count as silence; any loop may call this often."""
    if reporter := _current.get():
        reporter.alive()


@contextlib.contextmanager
def beside(act: Callable[[bool], float | None], seconds: float, name: str) -> Iterator[None]:
    """Call a function in a thread, again and again while the body runs.

    Args:
        act: called with whether the body has ended, which is the last call; returns the seconds until the next call, or
            None for no other one.
        seconds: time until the first call, unless the body ends before.
        name: name of the thread.
    """
    over = threading.Event()

    def work() -> None:
        pause, last = seconds, False
        while pause is not None and not last:
            last = over.wait(pause)
            pause = act(last)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def silent(stage: str = "stage") -> Reporter:
    """Return a reporter without a listener, for notebooks and tests."""
    return Reporter(stage, ignored)


def to_logger(logger: logging.Logger | logging.LoggerAdapter[Any]) -> Listener:
    """Return a listener that writes only log events, to a logger."""

    def write(event: Event) -> None:
        if event["event"] == "log":
            level = logging.WARNING if event["level"] == "warning" else logging.INFO
            logger.log(level, "%s: %s", event["stage"], event["message"])

    return write


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Send the events of every flow's stages in the body to this listener: the terminal of an embedded run."""
    token = _terminal.set(listener)
    try:
        yield
    finally:
        _terminal.reset(token)


def terminal() -> Listener:
    """Return the listener of :func:`heard_by`; without one, as in a worker's process, one that does nothing."""
    return _terminal.get()
