"""Tells the supervising process how long the next part takes, and looks whether that is too long. No TensorFlow."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable

from podline.training.loop import StepsDone

# The median of this many parts: one slow part does not move it, and a change of pace does within a minute.
_REMEMBERED = 31

JUDGED_SECONDS, JUDGED_STEPS = 3.0, 5
"""Training is held against earlier runs when its steps took so long and were so many, after the first part."""


class Paced:
    """Takes steps, and tells while they are taken how long they usually take.

    What comes between the steps (evaluation, checkpoints, the graph of the first step) has no pace: it takes what it
    takes.
    """

    def __init__(self, advance: Callable[[int], StepsDone], tell: Callable[[float | None], None]) -> None:
        """Steps with a pace.

        Args:
            advance: takes this many steps.
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


class Watched:
    """Takes steps, and tells once, when enough were taken, how long an example takes.

    The first part does not count: it waits for the input to begin, and may turn the step into a graph.
    """

    def __init__(
        self,
        advance: Callable[[int], StepsDone],
        start: int,
        batch_size: Callable[[int], int],
        judge: Callable[[int, float, float], None],
    ) -> None:
        """Steps that are watched.

        Args:
            advance: takes this many steps.
            start: how many are done.
            batch_size: examples in the step of an index.
            judge: told of the step, the seconds that an example took, and the share of them that was waiting for input.
        """
        self._advance, self._step, self._batch_size, self._judge = advance, start, batch_size, judge
        self._parts: list[StepsDone] = []
        self._examples = 0
        self._first, self._told = True, False

    def advance(self, count: int) -> StepsDone:
        """Takes ``count`` steps."""
        examples = count * self._batch_size(self._step)
        part = self._advance(count)
        self._step += part.steps
        if not self._first and not self._told:
            self._look(part, examples)
        self._first = False
        return part

    def _look(self, part: StepsDone, examples: int) -> None:
        self._parts.append(part)
        self._examples += examples
        seconds = sum(each.seconds for each in self._parts)
        if seconds >= JUDGED_SECONDS and sum(each.steps for each in self._parts) >= JUDGED_STEPS:
            self._told = True
            self._judge(self._step, seconds / self._examples, sum(each.waiting for each in self._parts) / seconds)
