"""The clock of the TPU's gate, watch and repairs; tests replace it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock with a sleep function."""

    def now(self) -> float:
        """Return seconds since 1970, UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        ...


class SystemClock:
    """The machine's time at the start plus the seconds since; a change of the machine's clock does not affect waits."""

    def __init__(self) -> None:
        self._zero = time.time() - time.monotonic()

    def now(self) -> float:
        """Return seconds since 1970, UTC."""
        return self._zero + time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        time.sleep(seconds)


SYSTEM_CLOCK: Clock = SystemClock()
