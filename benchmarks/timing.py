"""Times sides in turn, so that a slow minute of the machine slows all of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def in_turns(sides: Mapping[str, Callable[[], T]], repetitions: int) -> dict[str, list[T]]:
    """Call each side ``repetitions`` times; another side begins each time. Return the results by side, in order."""
    results, turns = {name: list[T]() for name in sides}, deque(sides)
    for _ in range(repetitions):
        for name in turns:
            results[name].append(sides[name]())
        turns.rotate(-1)
    return results


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
