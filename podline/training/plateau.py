"""The learning rate is lowered when validation stalls. Nothing here needs TensorFlow.

What a plateau remembers from one evaluation to the next is the last line that it wrote into ``metrics.jsonl``, which
every checkpoint vouches for: a run that goes on reads its state where it left it, to the last bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from podline.documents.metrics_log import EvaluationLine, EventKind, MetricsLine, PlateauLine
from podline.recipes.settings import PlateauSettings

# Best, stalled, cooling and factor before the first evaluation.
_FRESH = (math.inf, 0, 0, 1.0)


class Plateau:
    """Decides about the rate of one run."""

    def __init__(
        self,
        settings: PlateauSettings | None,
        lines: Iterable[MetricsLine],
        write: Callable[[PlateauLine], None],
        tell: Callable[[EventKind, int, str], None],
    ) -> None:
        """Goes on where a run was left.

        Args:
            settings: when to lower; None is never.
            lines: of the run's ``metrics.jsonl`` so far.
            write: what is done with a decision.
            tell: told of a lowering: what happened, at which step, in words.
        """
        self._settings, self._write, self._tell = settings, write, tell
        self._last = next((line for line in reversed([*lines]) if isinstance(line, PlateauLine)), None)

    def factor(self) -> float:
        """What the schedule's rate is multiplied by now."""
        return self._last.factor if self._last else 1.0

    def decide(self, evaluation: EvaluationLine) -> None:
        """Takes an evaluation into account."""
        if self._settings is None:
            return
        before = self.factor()
        self._last = judged(self._settings, self._last, evaluation)
        self._write(self._last)
        if self._last.lowered:
            self._tell(
                "rate_lowered",
                evaluation.step,
                f"step {evaluation.step}: {evaluation.split} {self._settings.metric} {self._last.value:.4f} vs "
                f"{self._last.best:.4f} at best: the learning rate is lowered from {before:.4g} to "
                f"{self._last.factor:.4g} of the schedule's",
            )


def judged(settings: PlateauSettings, last: PlateauLine | None, evaluation: EvaluationLine) -> PlateauLine:
    """What an evaluation means for the rate, as in Keras's ``ReduceLROnPlateau``.

    Args:
        settings: when to lower.
        last: the decision before; None before the first.
        evaluation: what is known now.
    """
    value = evaluation.loss if settings.metric == "loss" else 1 - evaluation.accuracy
    best, stalled, cooling, factor = (last.best, last.stalled, last.cooling, last.factor) if last else _FRESH
    improved = value < best * (1 - settings.least)
    stalled = 0 if improved or cooling else stalled + 1
    lowered = stalled >= settings.patience and factor > settings.floor
    return PlateauLine(
        step=evaluation.step,
        value=value,
        best=value if improved else best,
        stalled=0 if lowered else stalled,
        cooling=settings.cooldown if lowered else max(cooling - 1, 0),
        lowered=lowered,
        factor=max(factor * settings.factor, settings.floor) if lowered else factor,
        time=time.time(),
    )
