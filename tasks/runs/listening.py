"""Listeners to a flow's stages beside its log: the terminal of an embedded run. Needs no Prefect to be imported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from podline.progress import Listener

_terminal: ContextVar[Listener] = ContextVar("terminal", default=lambda _event: None)


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Send the events of every stage of flows in the body to this listener."""
    token = _terminal.set(listener)
    try:
        yield
    finally:
        _terminal.reset(token)


def terminal() -> Listener:
    """Return the listener of :func:`heard_by`; without one, as in a worker's process, one that does nothing."""
    return _terminal.get()
