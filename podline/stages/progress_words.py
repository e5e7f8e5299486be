"""Formats the progress of a stage as text, for terminal and UI."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from podline.base.figures import count, duration, rounded
from podline.base.progress import ProgressEvent

_SHOWN_METRICS = 3


class StagePace:
    """The pace of a stage between its first and its latest report; work before the first report does not count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None

    def left(self, event: ProgressEvent) -> str:
        """Return the remaining time at this pace; empty while unknown."""
        now, done, total = self._clock(), event["done"], event["total"]
        if self._first is None or done < self._first[1]:
            self._first = (now, done)
        since, done_at_first = self._first
        if done <= done_at_first or done >= total or now - since < 1.0:
            return ""
        return f"{duration((total - done) * (now - since) / (done - done_at_first))} left"


def amount(event: ProgressEvent) -> str:
    """Return the progress as text, ``400/1,500 steps``; empty without a total."""
    if not event["total"]:
        return ""
    return f"{count(event['done'])}/{count(event['total'])} {event['unit']}"


def metrics(values: Mapping[str, float], between: str = "  ") -> str:
    """Format the first three metrics of an event: ``loss 0.412  accuracy 0.87``."""
    shown = list(values.items())[:_SHOWN_METRICS]
    return between.join(f"{name.replace('_', ' ')} {rounded(value)}" for name, value in shown)
