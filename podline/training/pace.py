"""Tells the supervising process how long the next part takes. Needs no TensorFlow."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable

from podline.training.loop import StepsDone

# The median of so many parts: one slow part does not move it, and a change of pace does within a minute.
_REMEMBERED = 31


class Paced:
    """Takes steps, and tells while they are taken how long they usually take.

    What comes between the steps (evaluation, checkpoints, the graph of the first step) has no pace: it takes what it
    takes.
    """

    def __init__(self, advance: Callable[[int], StepsDone], tell: Callable[[float | None], None]) -> None:
        """Steps with a pace.

        Args:
            advance: takes so many steps.
            tell: told of the seconds until the steps that begin now will be done; None between steps, and before the
                first ones.
        """
        self._advance, self._tell = advance, tell
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)

    def advance(self, count: int) -> StepsDone:
        """Takes ``count`` steps."""
        self._tell(count * statistics.median(self._seconds) if self._seconds else None)
        part = self._advance(count)
        self._tell(None)
        self._seconds.append(part.seconds / part.steps)
        return part
