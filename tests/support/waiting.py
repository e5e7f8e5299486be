"""Wait for a condition, with a time limit that an overloaded machine does not reach."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float = 280.0, every: float = 0.1, log: Path | None = None) -> T:
    """Return the value of a condition once it is true; after ``seconds``, fail with the content of ``log``."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, log.read_text()[-4000:] if log else "the condition did not become true"
        time.sleep(every)
    return found
