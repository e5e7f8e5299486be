"""Progress events of a stage: JSON lines from a child process, which its parent shows as bars or logs.

A stage function gets a :class:`Reporter` and never prints. Events are written and read here alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, TypeVar, cast

from pydantic import BaseModel

from podline.base.errors import PodlineError
from podline.base.plain import plain


class StartEvent(TypedDict):
    """The supervisor looks for an earlier result, and then starts the stage."""

    event: Literal["start"]
    stage: str


class ProgressEvent(TypedDict):
    """A part of the work is done; ``note`` names the place of the work, if it is remarkable."""

    event: Literal["progress"]
    stage: str
    done: int
    total: int
    unit: str
    metrics: dict[str, float]
    note: NotRequired[str]


class LogEvent(TypedDict):
    """A line for the run's log."""

    event: Literal["log"]
    stage: str
    level: Literal["info", "warning"]
    message: str


class PaceEvent(TypedDict):
    """The next event is due in about this time; None means unknown. For the supervisor only."""

    event: Literal["pace"]
    stage: str
    seconds: float | None


class AliveEvent(TypedDict):
    """The stage works, although it has no progress to report. For the supervisor only."""

    event: Literal["alive"]
    stage: str


class WaitingEvent(TypedDict):
    """Another process blocks the work; this time counts towards no limit."""

    event: Literal["waiting"]
    stage: str
    message: str


class ResultEvent(TypedDict):
    """The stage's result as JSON; the last event of a successful stage."""

    event: Literal["result"]
    stage: str
    result: dict[str, Any]


class ErrorEvent(TypedDict):
    """The stage's error, see :meth:`podline.base.errors.PodlineError.to_json`; the last event of a failed stage."""

    event: Literal["error"]
    stage: str
    error: dict[str, Any]


Event: TypeAlias = (
    StartEvent | ProgressEvent | LogEvent | PaceEvent | AliveEvent | WaitingEvent | ResultEvent | ErrorEvent
)
Listener = Callable[[Event], None]


def to_line(event: Event) -> bytes:
    """Return an event as a line of JSON."""
    return json.dumps(event).encode() + b"\n"


def from_line(line: bytes) -> Event:
    """Return the event of a line."""
    return cast("Event", json.loads(line))


def ignored(_event: Event) -> None:
    """Do nothing; a listener."""


T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
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
        event = ProgressEvent(
            event="progress",
            stage=self.stage,
            done=int(done),
            total=int(total),
            unit=unit,
            metrics={name: float(value) for name, value in (metrics or {}).items()},
        )
        if note:
            event["note"] = note
        self._listener(event)

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

    def started(self) -> None:
        """Report the start."""
        self._listener({"event": "start", "stage": self.stage})

    def ended(self, result: dict[str, Any]) -> None:
        """Report the result."""
        self._listener({"event": "result", "stage": self.stage, "result": result})

    def failed(self, error: dict[str, Any]) -> None:
        """Report the error."""
        self._listener({"event": "error", "stage": self.stage, "error": error})

    def log(self, message: str) -> None:
        """Write a line to the run's log."""
        self._log("info", message)

    def warn(self, message: str) -> None:
        """Write a warning to the run's log; the stage continues."""
        self._log("warning", message)

    def _log(self, level: Literal["info", "warning"], message: str) -> None:
        self._listener({"event": "log", "stage": self.stage, "level": level, "message": plain(message)})


def report_stage(stage: str, listener: Listener, work: Callable[[], M]) -> M:
    """Return the result of a stage's work; report its start, and its result or error.

    Raises:
        PodlineError: an error of the work.
    """
    reporter = Reporter(stage, listener)
    reporter.started()
    try:
        result = work()
    except PodlineError as error:
        reporter.failed(error.to_json())
        raise
    reporter.ended(result.model_dump(mode="json"))
    return result


@contextlib.contextmanager
def report_work(stage: str, listener: Listener) -> Iterator[Reporter]:
    """Report the start of work that is no stage, and the seconds of its end unless it fails."""
    reporter, began = Reporter(stage, listener), time.monotonic()
    reporter.started()
    yield reporter
    reporter.ended({"seconds": time.monotonic() - began})


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
