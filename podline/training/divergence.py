"""Detects from the loss and gradient norms whether a training has diverged. Needs no TensorFlow."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from podline.base.errors import DivergenceError
from podline.base.plurals import plural
from podline.data.order import TrainingOrder
from podline.documents.metrics_log import MetricsLine, StepsLine
from podline.recipes.settings import ExplosionSettings
from podline.training.loop import Hook, Stretch

Loss = TypeVar("Loss", float, npt.NDArray[np.float64])

# The usual loss is the median over this number of stretches.
_REMEMBERED = 101
_NORMS_NAMED = 5


@dataclass(frozen=True)
class FailedStep:
    """A training step that failed.

    Attributes:
        step: index of the step, from 0.
        what: the problem as text.
        limit: the loss limit that was exceeded; infinite if the loss or the gradient is not finite.
    """

    step: int
    what: str
    limit: float = math.inf


class StopOnDivergence(Hook):
    """Ends the run if a loss or gradient is not finite, or if the loss has exploded.

    It is the first hook, so no other hook saves anything of a failed stretch. A loss has *exploded* when ``stretches``
    stretches in a row have a mean loss above a limit, ``factor`` times the usual loss (:func:`scaled`). The usual loss
    is the larger of the first stretch's loss and the median of the latest stretches below their limit.
    """

    reads = ("loss", "gradient_norm")

    def __init__(
        self,
        order: TrainingOrder,
        settings: ExplosionSettings,
        explain: Callable[[FailedStep], str],
    ) -> None:
        self._order, self._settings, self._explain = order, settings, explain
        self._first: float | None = None
        self._losses, self._norms = deque[float](maxlen=_REMEMBERED), deque[float](maxlen=_NORMS_NAMED)
        # The stretches above the limit, and the newest one; the norms of their steps are not yet in _norms.
        self._recent: list[Stretch] = []

    def note(self, line: MetricsLine) -> None:
        """Restore the loss and gradient history of an interrupted run from a line of its metrics log."""
        if isinstance(line, StepsLine):
            usual, limit = self._usual_and_limit(line.loss)
            if line.loss <= limit or not usual:
                self._losses.append(line.loss)
            self._norms.append(line.gradient_norm)

    def _usual_and_limit(self, loss: float) -> tuple[float, float]:
        """Return the usual loss and the limit for a stretch's mean loss; keep the ``loss`` of the first call."""
        self._first = loss if self._first is None else self._first
        usual = max(self._first, statistics.median(self._losses or [self._first]))
        return usual, scaled(usual, self._settings.factor)

    def after(self, stretch: Stretch) -> None:
        """Check every step of a stretch.

        Raises:
            DivergenceError: a step failed; the message names the step, its batch, the cause and earlier gradient norms.
        """
        self._recent.append(stretch)
        failure = _not_finite(stretch) or self._exploded(stretch)
        if failure:
            self._keep_norms_before(failure.step)
            raise DivergenceError(self._message(failure))

    def _keep_norms_before(self, step: int) -> None:
        """Remember the recent stretches' norms of the steps before index ``step``, and forget these stretches."""
        for stretch in self._recent:
            self._norms.extend(stretch.series["gradient_norm"][: max(step - stretch.first, 0)].tolist())
        self._recent.clear()

    def rehearse(self, stretch: Stretch) -> None:
        """Check one stretch alone; skip the rules that compare several stretches."""
        failure = _not_finite(stretch)
        if failure:
            raise DivergenceError(self._message(failure))

    def _exploded(self, stretch: Stretch) -> FailedStep | None:
        loss = float(np.mean(stretch.series["loss"], dtype=np.float64))
        usual, limit = self._usual_and_limit(loss)
        if loss <= limit or not usual:
            self._keep_norms_before(stretch.step)
            self._losses.append(loss)
            return None
        if len(self._recent) < self._settings.stretches:
            return None
        start = self._recent[0]
        step = start.first + int(np.argmax(start.series["loss"] > limit))
        return FailedStep(
            step,
            f"the loss has exploded: its mean up to step {stretch.step} is {loss:.4g}, and {len(self._recent)} "
            f"stretches in a row were above {limit:.4g} (factor {self._settings.factor:g}, usual loss {usual:.4g}); "
            "the explosion began",
            limit,
        )

    def _message(self, failure: FailedStep) -> str:
        order, step = self._order, failure.step
        place, (epoch, ids) = order.epochs.place(step), order.batch(step)
        norms = ", ".join(f"{norm:.3g}" for norm in self._norms) or "there were none"
        return (
            f"{failure.what} at step {step + 1}: batch {place.batch + 1} of {place.batches} "
            f"in epoch {epoch + 1}, {plural(len(ids), 'example')}\n{self._explain(failure)}\n"
            f"gradient norms before this step: {norms}"
        )


def scaled(loss: Loss, factor: float) -> Loss:
    """Return ``loss + (factor - 1) * |loss|``: with factor 10, a loss of 2 gives 20 and a loss of -2 gives 16."""
    return loss + (factor - 1) * abs(loss)


def _not_finite(stretch: Stretch) -> FailedStep | None:
    losses, norms = stretch.series["loss"], stretch.series["gradient_norm"]
    wrong = np.flatnonzero(~(np.isfinite(losses) & np.isfinite(norms)))
    if not wrong.size:
        return None
    place = int(wrong[0])
    what = (
        f"the loss is finite, but its gradient's norm is {norms[place]}"
        if np.isfinite(losses[place])
        else f"the loss is {losses[place]}"
    )
    return FailedStep(stretch.first + place, what)
