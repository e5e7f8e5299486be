"""Learning-rate schedules as functions of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from podline.errors import SettingsError
from podline.recipes.epochs import Epochs
from podline.recipes.settings import ScheduleSettings


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step, counted from 0; every duration is in steps.

    The rate rises by ``peak / warmup`` per step, from that value at step 0 to ``peak``. After ``warmup`` steps it is
    ``peak`` times a factor.
    With s steps since the warm-up and p = s / (``total`` - ``warmup``), at most 1, the factor is

    - ``constant``, ``plateau``: 1 (``plateau`` lowers the rate by evaluations, not by the step; see
      :mod:`podline.training.decisions`)
    - ``exponential``: ``decay`` to the power of floor(s / ``decay_every``)
    - ``cosine``: from 1 to ``final`` along half a cosine, Loshchilov, Hutter: "SGDR", ICLR 2017
    - ``one_cycle``: from 1 to ``final`` along a line, after Smith, Topin: "Super-Convergence", 2018

    so that the factor is ``final`` at step ``total``, the first step that is not trained. All of these are counted from
    step ``first`` of the run.
    """

    kind: Literal["constant", "exponential", "cosine", "one_cycle", "plateau"]
    peak: float
    warmup: int
    total: int
    final: float
    decay: float
    decay_every: int
    first: int = 0

    def at(self, step: int) -> float:
        """Return the learning rate of a step."""
        step -= self.first
        rise = min(step + 1, self.warmup) / self.warmup if self.warmup else 1.0
        return rise * self.peak * self._after_warmup(max(step - self.warmup, 0))

    def _after_warmup(self, elapsed: int) -> float:
        """Return the share of the peak ``elapsed`` steps after the warm-up."""
        span = self.total - self.warmup
        match self.kind:
            case "constant" | "plateau":
                return 1.0
            case "exponential":
                return self.decay ** (elapsed // self.decay_every)
            case "cosine":
                # cos² of half the angle; (1 + cos) / 2 would lose digits to cancellation near the end.
                half_angle = min(elapsed, span) * (math.pi / 2 / span)
                return self.final + (1 - self.final) * math.cos(half_angle) ** 2
            case "one_cycle":
                left = max(span - elapsed, 0) / span
                return self.final + (1 - self.final) * left


def build_schedule(settings: ScheduleSettings, total_steps: int, epochs: Epochs, first: int = 0) -> Schedule:
    """Return a recipe's schedule with its durations in steps.

    Args:
        settings: the recipe's settings.
        total_steps: the steps of the schedule.
        epochs: the batches of each epoch.
        first: the step at which the schedule begins.

    Raises:
        SettingsError: the warm-up is as long as the training, ``decay_every`` is below one step, or it is in epochs and
            the batch size changes.
    """
    warmup = settings.warmup.of(total_steps, epochs)
    decay_every = settings.decay_every.of(total_steps, epochs)
    if warmup >= total_steps:
        raise SettingsError(
            f"schedule.warmup of {warmup} steps vs {total_steps} steps of training: shorten it or train longer"
        )
    if settings.kind == "exponential" and decay_every < 1:
        raise SettingsError(f"decay_every={settings.decay_every!r} is not a number of steps; give at least one")
    measured = settings.decay_every.epochs is not None
    if settings.kind == "exponential" and measured and len(epochs.changes) > 1:
        raise SettingsError(
            f"decay_every={settings.decay_every!r} vs a batch size that changes by epoch: the number of steps would "
            "vary; give decay_every.steps or decay_every.share"
        )
    return Schedule(
        kind=settings.kind,
        peak=settings.learning_rate,
        warmup=warmup,
        total=total_steps,
        final=settings.final,
        decay=settings.decay,
        decay_every=decay_every,
        first=first,
    )
