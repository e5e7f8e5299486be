"""Two sides timed in turns, so that a slow minute of the machine is a slow minute for both."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

Side = Callable[[], object]


class Seconds(NamedTuple):
    """What each repetition took, in seconds, in the order measured."""

    ours: list[float]
    other: list[float]


def in_turns(ours: Side, other: Side, repetitions: int, before: Side | None = None) -> Seconds:
    """Time two sides ``repetitions`` times each; who goes first alternates.

    Args:
        ours: our way; called once for each repetition.
        other: the plain way.
        repetitions: how often each is timed.
        before: called before each timing, outside the clock: to clear what the last one left.
    """
    seconds = Seconds([], [])
    for repetition in range(repetitions):
        turns = [(ours, seconds.ours), (other, seconds.other)]
        for side, record in turns if repetition % 2 == 0 else turns[::-1]:
            if before:
                before()
            started = time.perf_counter()
            side()
            record.append(time.perf_counter() - started)
    return seconds
