"""The clock of everything about TPUs."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Says the time and waits."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Returns after so many seconds."""
        ...


class SystemClock:
    """The machine's own clock as it was when this began, and the seconds since.

    Waits and limits are differences of its times: a clock that is set meanwhile neither ends nor prolongs them.
    """

    def __init__(self) -> None:
        self._zero = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        return self._zero + time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Returns after so many seconds."""
        time.sleep(seconds)


def in_words(seconds: float) -> str:
    """A stretch of time for people: ``45 s``, ``20 min``, ``1 h 5 min``."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = round(whole / 60)
    hours, minutes = divmod(minutes, 60)
    parts = ([f"{hours} h"] if hours else []) + ([f"{minutes} min"] if minutes else [])
    return " ".join(parts)
