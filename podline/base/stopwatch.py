"""Measures how a thread spends its time: seconds per kind of work. Nested work counts for the innermost kind only."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping


class _Watch(threading.local):
    def __init__(self) -> None:
        self.spans, self.open, self.since = defaultdict[str, float](float), list[str](), 0.0

    def lap(self) -> None:
        """Add the time since the last lap to the innermost kind of work."""
        now = time.monotonic()
        if self.open:
            self.spans[self.open[-1]] += now - self.since
        self.since = now


_WATCH = _Watch()


@contextlib.contextmanager
def measured(kind: str) -> Iterator[None]:
    """Add the body's time to ``kind``, except time in nested ``measured`` bodies; also a decorator for functions."""
    _WATCH.lap()
    _WATCH.open.append(kind)
    try:
        yield
    finally:
        _WATCH.lap()
        _WATCH.open.pop()


def spans() -> dict[str, float]:
    """Return kind of work → seconds of this thread so far."""
    _WATCH.lap()
    return {kind: round(seconds, 4) for kind, seconds in _WATCH.spans.items()}


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Return the increase between two results of :func:`spans`."""
    return {kind: seconds - before.get(kind, 0.0) for kind, seconds in now.items()}
