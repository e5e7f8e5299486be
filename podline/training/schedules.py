"""Learning-rate schedules as functions of the step."""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass

from podline.base.errors import SettingsError
from podline.recipes.durations import Part
from podline.recipes.epochs import Epochs
from podline.recipes.settings import ScheduleSettings


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step, counted from 0; all durations are in steps.

    The rate rises by a ``warmup``-th of the peak per step, from that value at step 0 to the peak. After ``warmup``
    steps it is the peak times a factor. With s steps since the warm-up and p = s / (``total`` - ``warmup``), at most 1,
    the factor is

    - ``constant``, ``plateau``: 1 (``plateau`` lowers the rate by evaluations, not by the step; see
      :mod:`podline.training.decisions`)
    - ``exponential``: ``decay`` to the power of floor(s / ``decay_every``)
    - ``cosine``: from 1 to ``final`` along half a cosine, Loshchilov, Hutter: "SGDR", ICLR 2017
    - ``restarts``: cosines as above, one after another. The first has ``period`` steps. Each later cosine is
      ``period_factor`` times as long and begins with ``peak_factor`` times the height above ``final``
    - ``polynomial``: ``final`` + (1 - ``final``) times (1 - p) to the power of ``power``
    - ``step``: the element of ``shares`` for the last of ``boundaries`` that is at most s; 1 before the first boundary
    - ``one_cycle``: from 1 to ``final`` along a line, after Smith, Topin: "Super-Convergence", 2018

    ``cosine``, ``polynomial`` and ``one_cycle`` reach ``final`` at step ``total``, the first step that is not trained.
    All steps above are counted from step ``first`` of the run.
    """

    settings: ScheduleSettings
    warmup: int
    total: int
    decay_every: int
    period: int
    boundaries: tuple[int, ...]
    first: int = 0

    def at(self, step: int) -> float:
        """Return the learning rate of a step."""
        step -= self.first
        rise = min(step + 1, self.warmup) / self.warmup if self.warmup else 1.0
        return rise * self.settings.learning_rate * self._after_warmup(max(step - self.warmup, 0))

    def _after_warmup(self, elapsed: int) -> float:
        """Return the share of the peak ``elapsed`` steps after the warm-up."""
        span, settings = self.total - self.warmup, self.settings
        match settings.kind:
            case "constant" | "plateau":
                return 1.0
            case "exponential":
                return settings.decay ** (elapsed // self.decay_every)
            case "cosine":
                return _cosine(min(elapsed, span) / span, settings.final)
            case "restarts":
                return self._restarted(elapsed)
            case "polynomial":
                return settings.final + (1 - settings.final) * (max(span - elapsed, 0) / span) ** settings.power
            case "step":
                passed = bisect.bisect_right(self.boundaries, elapsed)
                return settings.shares[passed - 1] if passed else 1.0
            case "one_cycle":
                return settings.final + (1 - settings.final) * (max(span - elapsed, 0) / span)

    def _restarted(self, elapsed: int) -> float:
        begins, length, peak = 0.0, float(self.period), 1.0
        while elapsed >= begins + length:
            begins, length = begins + length, length * self.settings.period_factor
            peak *= self.settings.peak_factor
        return _cosine((elapsed - begins) / length, self.settings.final, peak)


def _cosine(done: float, final: float, peak: float = 1.0) -> float:
    """Return the value at the share ``done`` of half a cosine from ``final + (1 - final) * peak`` to ``final``."""
    # cos² of half the angle; (1 + cos) / 2 would lose digits to cancellation near the end.
    return final + (1 - final) * peak * math.cos(done * (math.pi / 2)) ** 2


def build_schedule(settings: ScheduleSettings, total_steps: int, epochs: Epochs, first: int = 0) -> Schedule:
    """Return a recipe's schedule with its durations in steps.

    Args:
        settings: the recipe's settings.
        total_steps: the steps of the schedule.
        epochs: the number of batches of each epoch.
        first: the step at which the schedule begins.

    Raises:
        SettingsError: the warm-up is not shorter than ``total_steps``; boundaries are not in ascending order; or an
            interval is below one step, or given in epochs although the batch size changes.
    """
    warmup = settings.warmup.of(total_steps, epochs)
    if warmup >= total_steps:
        raise SettingsError(
            f"schedule.warmup of {warmup} steps vs {total_steps} steps of training: shorten it or train longer"
        )
    boundaries = tuple(each.of(total_steps, epochs) for each in settings.boundaries)
    if any(later <= before for before, later in itertools.pairwise(boundaries)):
        raise SettingsError(f"schedule.boundaries: got steps {boundaries}, expected them in ascending order")
    return Schedule(
        settings=settings,
        warmup=warmup,
        total=total_steps,
        decay_every=_interval(settings, "decay_every", total_steps, epochs),
        period=_interval(settings, "period", total_steps, epochs),
        boundaries=tuple(each - warmup for each in boundaries),
        first=first,
    )


_INTERVALS = {"decay_every": "exponential", "period": "restarts"}


def _interval(settings: ScheduleSettings, name: str, total_steps: int, epochs: Epochs) -> int:
    """Return the interval ``decay_every`` or ``period`` in steps; 0 if the schedule does not use it."""
    if settings.kind != _INTERVALS[name]:
        return 0
    part: Part = dict(settings)[name]
    steps = part.of(total_steps, epochs)
    if steps < 1:
        raise SettingsError(f"schedule.{name} of {part} is less than one step; give at least one step")
    if part.epochs is not None and len(epochs.changes) > 1:
        raise SettingsError(
            f"schedule.{name} of {part} vs a batch size that changes by epoch: the number of steps would vary; give "
            f"schedule.{name}.steps or .share"
        )
    return steps
