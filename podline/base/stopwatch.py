"""Measures the use of a thread's time: seconds by class of time, where the innermost class counts."""

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
        """Add the time since the last change to the innermost open class."""
        now = time.monotonic()
        if self.open:
            self.spans[self.open[-1]] += now - self.since
        self.since = now


_WATCH = _Watch()


@contextlib.contextmanager
def measured(kind: str) -> Iterator[None]:
    """Count the body's time for a class, without the time of inner classes; also a decorator for functions."""
    _WATCH.lap()
    _WATCH.open.append(kind)
    try:
        yield
    finally:
        _WATCH.lap()
        _WATCH.open.pop()


def spans() -> dict[str, float]:
    """Return class → seconds of this thread so far."""
    _WATCH.lap()
    return {kind: round(seconds, 4) for kind, seconds in _WATCH.spans.items()}


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Return the increase between two results of :func:`spans`."""
    return {kind: seconds - before.get(kind, 0.0) for kind, seconds in now.items()}
