"""Decisions after an evaluation: lower the rate (plateau), restore a state (annealing), end (early stopping, pruning).

The deciders read evaluations of the validation split or of held-out training examples, never of the test split. A
decider keeps its whole state in its last line of ``metrics.jsonl``, the pruner in the evaluations. Each checkpoint has
that file's checksum, so a resumed run takes the same decisions as an uninterrupted one. This needs no TensorFlow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from podline.base.plurals import plural
from podline.data.order import random_uniform
from podline.documents.metrics_log import (
    AnnealingLine,
    EarlyStopLine,
    EvaluationLine,
    MetricsLine,
    PlateauLine,
    StopLine,
)
from podline.recipes.measures import measure_named
from podline.recipes.schedule_settings import (
    WITHOUT_MEASURE,
    AnnealingSettings,
    EarlyStopSettings,
    PlateauSettings,
)
from podline.stages.specs import Pruning
from podline.training.divergence import scaled

if TYPE_CHECKING:  # run imports TensorFlow
    from podline.training.run import Run

L = TypeVar("L", bound=MetricsLine)

# Defaults of a plateau: least improvement as a share of the best value, least rate as a share of the schedule's rate.
_PLATEAU_SHARE, _LEAST_RATE = 0.01, 0.001


def latest(lines: Iterable[MetricsLine], kind: type[L]) -> L | None:
    """Return the last line of the class ``kind``, or None."""
    return next((line for line in reversed([*lines]) if isinstance(line, kind)), None)


class Plateau:
    """Lowers the learning rate of one run when validation stalls."""

    def __init__(self, run: Run, lines: Iterable[MetricsLine], write: Callable[[PlateauLine], None]) -> None:
        """Restore the state of an interrupted run from its lines of ``metrics.jsonl``; ``write`` appends a line."""
        self._run, self._settings, self._write = run, run.recipe.schedule.plateau, write
        self._last = latest(lines, PlateauLine)

    def factor(self) -> float:
        """Return the current multiplier of the schedule's rate."""
        return self._last.factor if self._last else 1.0

    def decide(self, evaluation: EvaluationLine) -> None:
        """Process an evaluation: lower the rate if the metric has stalled."""
        if self._settings is None:
            return
        before, rate = self.factor(), self._run.plan.rate(evaluation.step - 1)
        self._last = line = plateau_line(self._settings, self._last, evaluation, rate)
        self._write(line)
        if line.lowered:
            self._run.tell(
                "rate_lowered",
                line.step,
                f"step {line.step}: {evaluation.split} {self._settings.metric} {line.value:.4f} vs {line.best:.4f} at "
                f"best: the learning rate is lowered from {before:.4g} to {line.factor:.4g} of the schedule's rate",
            )


def plateau_line(
    settings: PlateauSettings, last: PlateauLine | None, evaluation: EvaluationLine, rate: float
) -> PlateauLine:
    """Return the line with the decision about the learning rate, by the rule of Keras's ``ReduceLROnPlateau``.

    Args:
        settings: when and how to lower the rate.
        last: the previous decision.
        evaluation: the evaluation to decide about.
        rate: the schedule's rate of the latest step.
    """
    value = value_of(settings.metric, evaluation)
    factor, cooling = (last.factor, max(last.cooling - 1, 0)) if last else (1.0, 0)
    improved = last is None or improves(settings, value, last.best, _PLATEAU_SHARE)
    stalled = 0 if last is None or improved or cooling else last.stalled + 1
    least = _LEAST_RATE if settings.min_rate_share is None else settings.min_rate_share
    if settings.min_lr is not None:
        least = settings.min_lr / rate
    lowered = stalled >= settings.patience and factor > least
    return PlateauLine(
        step=evaluation.step,
        value=value,
        best=value if last is None or improved else last.best,
        stalled=0 if lowered else stalled,
        cooling=settings.cooldown if lowered else cooling,
        lowered=lowered,
        factor=max(factor * settings.factor, least) if lowered else factor,
        time=time.time(),
    )


def improves(settings: PlateauSettings | EarlyStopSettings, value: float, best: float, usual_share: float) -> bool:
    """Return whether ``value`` is better than ``best`` by more than the improvement that the settings require.

    Args:
        settings: the settings with the least improvement and the metric.
        value: the new value.
        best: the best value so far.
        usual_share: the least improvement as a share of ``best`` if the settings give none.
    """
    sign = -1 if higher_is_better(settings.metric) else 1
    value, best = sign * value, sign * best
    if settings.min_delta is not None:
        return value < best - settings.min_delta
    return value < scaled(best, 1 - (usual_share if settings.min_delta_share is None else settings.min_delta_share))


class Annealing:
    """Accepts or rejects the states of one run; training goes on from the last accepted one.

    Kirkpatrick, Gelatt, Vecchi: "Optimization by Simulated Annealing", Science 220, 1983, with Metropolis's rule: a
    lower energy is always accepted, a higher one with the probability exp(-difference / temperature).
    """

    def __init__(self, run: Run, lines: Iterable[MetricsLine], write: Callable[[AnnealingLine], None]) -> None:
        """Restore the state of an interrupted run from its lines of ``metrics.jsonl``; ``write`` appends a line."""
        self._run, self._settings, self._write = run, run.recipe.annealing, write
        self._last = latest(lines, AnnealingLine)

    def accepted(self) -> int | None:
        """Return the step of the last accepted state, whose checkpoint must be kept; None before the first decision."""
        return self._last.state if self._last else None

    def decide(self, evaluation: EvaluationLine) -> None:
        """Accept the evaluated state, or restore the last accepted one.

        Raises:
            StoreError: the accepted state cannot be read.
            ArtifactError: the accepted state has changed.
        """
        if self._settings is None:
            return
        run = self._run
        self._last = line = annealing_line(
            self._settings, run.recipe.seed, run.plan.total_steps, self._last, evaluation
        )
        if not line.accepted:
            run.go_back_to(line.state)
        self._write(line)
        run.tell("accepted" if line.accepted else "rejected", line.step, _in_words(line))


def annealing_line(
    settings: AnnealingSettings, seed: int, total_steps: int, last: AnnealingLine | None, evaluation: EvaluationLine
) -> AnnealingLine:
    """Return the line that accepts or rejects the evaluated state; the first state is always accepted."""
    energy = value_of(settings.energy, evaluation)
    temperature = settings.temperature * settings.final ** (evaluation.step / total_steps)
    number = last.number + 1 if last else 0
    rise = max(0.0, energy - last.against) if last else 0.0
    probability = math.exp(-rise / temperature)
    draw = float(random_uniform(seed, "annealing", number, [0])[0])
    accepted = last is None or draw < probability
    return AnnealingLine(
        step=evaluation.step,
        number=number,
        energy=energy,
        rise=rise,
        temperature=temperature,
        probability=probability,
        draw=draw,
        accepted=accepted,
        state=evaluation.step if last is None or accepted else last.state,
        against=energy if last is None or accepted else last.against,
        time=time.time(),
    )


def _in_words(line: AnnealingLine) -> str:
    if line.rise == 0:
        return f"step {line.step}: energy {line.energy:.4f} is no higher than before: accepted"
    why = f"is {line.rise:.4f} higher: acceptance probability {line.probability:.2f} at temperature"
    outcome = "accepted" if line.accepted else f"rejected; going back to the state of step {line.state}"
    return f"step {line.step}: energy {line.energy:.4f} {why} {line.temperature:.2g}, draw {line.draw:.2f}: {outcome}"


class EarlyStop:
    """Ends a run if its validation metric stalls, and restores the best state at the end; either may be turned off."""

    def __init__(self, run: Run, lines: Iterable[MetricsLine], write: Callable[[EarlyStopLine], None]) -> None:
        """Restore the state of an interrupted run from its lines of ``metrics.jsonl``; ``write`` appends a line."""
        self._run, self._settings, self._write = run, run.recipe.early_stop, write
        self.last = latest(lines, EarlyStopLine)

    @property
    def stopped(self) -> bool:
        """Return whether the run ended early."""
        return self.last is not None and self.last.stopped

    def needed(self) -> int | None:
        """Return the step of the best state, whose checkpoint must be kept; None if no state will be restored."""
        last, settings = self.last, self._settings
        return last.state if last and settings and settings.restore and not last.restored else None

    def decide(self, evaluation: EvaluationLine) -> None:
        """Process an evaluation: end the run if the metric has stalled, and at the end restore the best state.

        Raises:
            StoreError: the best state cannot be read.
            ArtifactError: the best state has changed.
        """
        if self._settings is None:
            return
        plan = self._run.plan
        self.last = line = early_stop_line(
            self._settings, plan.evaluations, plan.phases[-1].first, self.last, evaluation
        )
        if line.restored and line.state != line.step:
            self._run.go_back_to(line.state)
        self._write(line)
        if line.stopped:
            self._run.tell("stopped_early", line.step, ending(line, self._settings, plan.total_steps))


def early_stop_line(
    settings: EarlyStopSettings,
    due: Sequence[int],
    begins: int,
    last: EarlyStopLine | None,
    evaluation: EvaluationLine,
) -> EarlyStopLine:
    """Return the line with the decision whether a run ends.

    Args:
        settings: when a run ends.
        due: the steps of the run's evaluations.
        begins: the first step of the last phase; an evaluation before this step never ends the run.
        last: the previous decision.
        evaluation: the evaluation to decide about.
    """
    value = value_of(settings.metric, evaluation)
    improved = last is None or improves(settings, value, last.best, 0.0)
    best = value if last is None or improved else last.best
    # Errors within one standard error may differ by sampling noise only; the latest of these states trained longest.
    equal = settings.metric == "error" and value <= best + math.sqrt(best * (1 - best) / evaluation.examples)
    stalled = 0 if last is None or improved or evaluation.step <= begins else last.stalled + 1
    over = stalled >= settings.stalls(len(due)) or evaluation.step >= due[-1]
    return EarlyStopLine(
        step=evaluation.step,
        value=value,
        best=best,
        state=evaluation.step if last is None or improved or equal else last.state,
        stalled=stalled,
        stopped=over and evaluation.step < due[-1],
        restored=over and settings.restore,
        time=time.time(),
    )


def ending(line: EarlyStopLine | None, settings: EarlyStopSettings | None, total_steps: int) -> str:
    """Return a sentence about an early end or a restored earlier state; empty if there was neither."""
    if line is None or settings is None:
        return ""
    chosen = f"with the best {settings.metric}"
    if settings.metric == "error":
        chosen = "the latest whose error is within one standard error of the best"
    kept = f"the model is that of step {line.state:,}, {chosen}, {line.best:.4f}"
    if line.stopped:
        why = f"the validation {settings.metric} has not improved in {plural(line.stalled, 'evaluation')}"
        stopped = f"ended early at step {line.step:,} of {total_steps:,}: {why}"
        return f"{stopped}; {kept}" if line.restored else stopped
    return kept if line.restored and line.state != line.step else ""


def stopped_by(line: StopLine | None) -> str:
    """Return a sentence about the hook that ended the run; empty if no hook did."""
    return f"ended early at step {line.step:,} by {line.hook}: {line.reason}" if line else ""


class Pruner:
    """Ends a trial of a search if its best evaluation is above the limit set by earlier trials."""

    def __init__(self, settings: Pruning | None, total_steps: int, lines: Iterable[MetricsLine]) -> None:
        """Restore the state of an interrupted run from its lines; without ``settings`` no trial is pruned."""
        self._settings, self._total, self._best, self._number = settings, total_steps, math.inf, 0
        self.reason = ""
        for line in lines:
            if isinstance(line, EvaluationLine):
                self.decide(line)

    def decide(self, evaluation: EvaluationLine) -> None:
        """Process an evaluation; if the trial ends, set ``reason`` to the explanation."""
        if self._settings is None or evaluation.step >= self._total:
            return
        metric, limits = self._settings.metric, self._settings.limits
        self._best = min(self._best, value_of(metric, evaluation))
        limit = limits[self._number] if self._number < len(limits) else None
        self._number += 1
        if limit is not None and self._best > limit and not self.reason:
            self.reason = (
                f"pruned at step {evaluation.step:,} of {self._total:,}: {metric} {self._best:.4f} vs {limit:.4f}, the "
                "median of the earlier trials"
            )


def value_of(metric: str, evaluation: EvaluationLine) -> float:
    """Return the value of ``loss``, ``error`` or a measure in an evaluation."""
    values = {"loss": evaluation.loss, "error": 1 - evaluation.accuracy}
    return values[metric] if metric in values else evaluation.measures[metric]


def higher_is_better(metric: str) -> bool:
    """Return whether a higher value of a metric is better; False for ``loss`` and ``error``."""
    return metric not in WITHOUT_MEASURE and measure_named(metric).higher_is_better
