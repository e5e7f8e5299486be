"""A clock for what waits: it takes no time."""

from __future__ import annotations

import threading


class TurnedClock:
    """A clock that stands still until someone turns it; whoever sleeps on it turns it. Threads may share one."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> float:
        """Seconds since 1970, UTC, as far as this clock knows."""
        return self._now

    def sleep(self, seconds: float) -> None:
        self.turn(seconds)

    def turn(self, seconds: float) -> None:
        with self._lock:
            self._now += max(seconds, 0.0)
