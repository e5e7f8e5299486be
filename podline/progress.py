"""Progress events of a stage: JSON lines from a child process, shown above it as bars or logs.

A stage function takes a :class:`Reporter` and never prints. The vocabulary is small on purpose:

======== ==================================================================================================
event    fields
======== ==================================================================================================
start    ``stage``; said by the supervisor before it looks for an earlier result
progress ``stage``, ``done``, ``total``, ``unit``, ``metrics`` (name → number), ``note`` (where the work is done, if
         that is worth saying)
log      ``stage``, ``level`` (``info`` or ``warning``), ``message``
pace     ``stage``, ``seconds``: the next event is due in about so long; null is unknown. For the supervisor alone
waiting  ``stage``, ``message``: another process has what the work needs; this time counts towards no limit
result   ``stage``, ``result`` (the stage's result as JSON); the last line of a child that ended well
error    ``stage``, ``error`` (see :meth:`podline.errors.PodlineError.to_json`); the last of a child that failed
======== ==================================================================================================
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from podline.plain import plain

Event = dict[str, Any]
Listener = Callable[[Event], None]


def ignored(_event: Event) -> None:
    """Do nothing; a listener."""


_terminal: ContextVar[Listener] = ContextVar("terminal", default=ignored)


class Reporter:
    """Turns calls into events and hands each to one listener."""

    def __init__(self, stage: str, listener: Listener) -> None:
        self.stage = stage
        self._listener = listener

    def progress(
        self, done: int, total: int, unit: str, metrics: Mapping[str, float] | None = None, note: str = ""
    ) -> None:
        """``done`` of ``total`` ``unit``s are finished; every call is also a heartbeat."""
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
        """Announce the next event in about ``seconds``; None is unknown."""
        self._listener({"event": "pace", "stage": self.stage, "seconds": seconds})

    def waiting(self, message: str) -> None:
        """Report that the work has not begun, since another process has what it needs."""
        self._listener({"event": "waiting", "stage": self.stage, "message": plain(message)})

    def log(self, message: str) -> None:
        """Something a person reading the run's log wants to know."""
        self._log("info", message)

    def warn(self, message: str) -> None:
        """Something a person should look at, that does not stop the stage."""
        self._log("warning", message)

    def _log(self, level: str, message: str) -> None:
        self._listener({"event": "log", "stage": self.stage, "level": level, "message": plain(message)})


def silent(stage: str = "stage") -> Reporter:
    """Return a reporter without a listener, for notebooks and tests."""
    return Reporter(stage, ignored)


def to_logger(logger: logging.Logger | logging.LoggerAdapter[Any]) -> Listener:
    """Return a listener that writes log events, and nothing else, to a logger."""

    def write(event: Event) -> None:
        if event["event"] == "log":
            level = logging.WARNING if event["level"] == "warning" else logging.INFO
            logger.log(level, "%s: %s", event["stage"], event["message"])

    return write


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Send the events of every stage of flows in the body to this listener: the terminal of an embedded run."""
    token = _terminal.set(listener)
    try:
        yield
    finally:
        _terminal.reset(token)


def terminal() -> Listener:
    """Return the listener of :func:`heard_by`; without one, as in a worker's process, one that does nothing."""
    return _terminal.get()
