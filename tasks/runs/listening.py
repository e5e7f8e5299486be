"""Listeners to a flow's stages beside its log: the terminal of an embedded run. Needs no Prefect to be imported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from podline.progress import Listener

_terminal: ContextVar[Listener] = ContextVar("terminal", default=lambda _event: None)


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Flows that run in the body tell this listener of every stage's events."""
    token = _terminal.set(listener)
    try:
        yield
    finally:
        _terminal.reset(token)


def terminal() -> Listener:
    """The listener of :func:`heard_by`; one that hears nothing where there is none, as in a worker's process."""
    return _terminal.get()
