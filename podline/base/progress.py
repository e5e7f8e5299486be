"""Progress events of a stage: JSON lines that the stage's child process writes and its parent shows as bars or logs.

A stage function gets a :class:`Reporter` and never prints. Only this module writes and parses events.
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
    """``done`` of ``total`` units of work are finished; ``note`` says where the work runs, if not here."""

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
    """The next event is due in about ``seconds``; None means unknown. For the supervisor only."""

    event: Literal["pace"]
    stage: str
    seconds: float | None


class AliveEvent(TypedDict):
    """The stage is working, although it has no progress to report. For the supervisor only."""

    event: Literal["alive"]
    stage: str


class WaitingEvent(TypedDict):
    """The stage waits for another process; the waiting time counts towards no time-out."""

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
    """Serialize an event as one line of JSON."""
    return json.dumps(event).encode() + b"\n"


def from_line(line: bytes) -> Event:
    """Parse an event from one line of JSON."""
    return cast("Event", json.loads(line))


def ignored(_event: Event) -> None:
    """Ignore an event; the listener where no events are shown."""


T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
_REPORT_SECONDS = 1.0
_terminal: ContextVar[Listener] = ContextVar("terminal", default=ignored)


class Reporter:
    """Creates a stage's events and passes each to a listener."""

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
        """Report, at most once a second, that the stage is working; ends its start-up and resets the hang timer."""
        if time.monotonic() >= self._alive + _REPORT_SECONDS:
            self._alive = time.monotonic()
            self._listener({"event": "alive", "stage": self.stage})

    def waiting(self, message: str) -> None:
        """Report that the work has not begun, because another process blocks it."""
        self._listener({"event": "waiting", "stage": self.stage, "message": plain(message)})

    def started(self) -> None:
        """Report that the stage starts."""
        self._listener({"event": "start", "stage": self.stage})

    def ended(self, result: dict[str, Any]) -> None:
        """Report the stage's result as JSON."""
        self._listener({"event": "result", "stage": self.stage, "result": result})

    def failed(self, error: dict[str, Any]) -> None:
        """Report the stage's error as JSON."""
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
    """Call ``work`` and return its result; report its start, and its result or error.

    Raises:
        PodlineError: ``work`` raised it.
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
    """Report the start of work outside the stages and, unless the body raises, its end and duration."""
    reporter, began = Reporter(stage, listener), time.monotonic()
    reporter.started()
    yield reporter
    reporter.ended({"seconds": time.monotonic() - began})


_current: ContextVar[Reporter | None] = ContextVar("current", default=None)


@contextlib.contextmanager
def reported_by(reporter: Reporter) -> Iterator[None]:
    """Make ``reporter`` the one that :func:`counted` and :func:`alive` use in the body."""
    token = _current.set(reporter)
    try:
        yield
    finally:
        _current.reset(token)


def counted(items: Iterable[T], total: int, unit: str) -> Iterator[T]:
    """Yield items; report their number to the reporter of :func:`reported_by`, if there is one, once a second."""
    reporter, due = _current.get(), time.monotonic() + _REPORT_SECONDS
    for done, item in enumerate(items, 1):
        yield item
        if reporter and time.monotonic() >= due:
            reporter.progress(done, total, unit)
            due = time.monotonic() + _REPORT_SECONDS


def alive() -> None:
    """Report that this thread is working for a stage, which resets the hang timer; cheap enough for any loop."""
    if reporter := _current.get():
        reporter.alive()


@contextlib.contextmanager
def beside(act: Callable[[bool], float | None], seconds: float, name: str) -> Iterator[None]:
    """Call a function periodically in a thread while the body runs, and a last time when the body has ended.

    Args:
        act: called with False while the body runs, with True in the last call; returns the seconds until the next call.
            After None there is no further call, not even the last one.
        seconds: time until the first call; if the body ends earlier, the first call is the last one.
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
    """Return a listener that passes log events to a logger, and ignores all other events."""

    def write(event: Event) -> None:
        if event["event"] == "log":
            level = logging.WARNING if event["level"] == "warning" else logging.INFO
            logger.log(level, "%s: %s", event["stage"], event["message"])

    return write


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Set the listener that :func:`terminal` returns in the body: it shows the stages of flows that run here."""
    token = _terminal.set(listener)
    try:
        yield
    finally:
        _terminal.reset(token)


def terminal() -> Listener:
    """Return the listener set by :func:`heard_by`; by default, as in a worker's process, one that ignores events."""
    return _terminal.get()
