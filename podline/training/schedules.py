"""The learning rate as a pure function of the step: one formula, computed in Python or in TensorFlow's graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from podline.errors import SettingsError
from podline.recipes.settings import ScheduleSettings


@dataclass(frozen=True)
class _Arithmetic:
    """What the formula needs of the numbers that it is computed with."""

    real: Callable[[Any], Any]
    minimum: Callable[[Any, Any], Any]
    maximum: Callable[[Any, Any], Any]
    cos: Callable[[Any], Any]
    exp: Callable[[Any], Any]


_PYTHON = _Arithmetic(real=float, minimum=min, maximum=max, cos=math.cos, exp=math.exp)


@dataclass(frozen=True)
class Schedule:
    """A learning rate for every step, counted from 0; every duration is in steps.

    The rate rises linearly from 0 at step 0 to ``peak`` at step ``warmup``; then, with s steps since the warm-up and
    p = s / (``total`` - ``warmup``), at most 1, it is ``peak`` times

    - ``constant``, ``plateau``: 1 (what ``plateau`` lowers the rate by is no function of the step; see
      :mod:`podline.training.plateau`)
    - ``exponential``: ``decay`` to the power of the whole times that ``decay_every`` fits into s
    - ``cosine``: from 1 to ``final`` along half a cosine, Loshchilov, Hutter: "SGDR", ICLR 2017
    - ``one_cycle``: from 1 to ``final`` along a line, after Smith, Topin: "Super-Convergence", 2018

    so that ``final`` is reached at step ``total``, which is the first one that is not trained.
    """

    kind: Literal["constant", "exponential", "cosine", "one_cycle", "plateau"]
    peak: float
    warmup: int
    total: int
    final: float
    decay: float
    decay_every: int

    def at(self, step: int) -> float:
        """The learning rate of a step."""
        return float(self._rate(step, _PYTHON))

    def in_graph(self, step: Any) -> Any:
        """The learning rate of a step, as a float32 tensor.

        Args:
            step: a scalar tensor or variable of integers.
        """
        import tensorflow as tf  # noqa: PLC0415 (a schedule can be drawn without it)

        tensors = _Arithmetic(lambda value: tf.cast(value, tf.float32), tf.minimum, tf.maximum, tf.cos, tf.exp)
        # The kind is chosen in Python, once; AutoGraph cannot read a match statement and would say so at length.
        return tf.autograph.experimental.do_not_convert(self._rate)(step, tensors)

    def _rate(self, step: Any, maths: _Arithmetic) -> Any:
        rise = maths.real(maths.minimum(step, self.warmup)) / self.warmup if self.warmup else maths.real(1)
        return rise * self.peak * self._after_warmup(maths.maximum(step - self.warmup, 0), maths)

    def _after_warmup(self, elapsed: Any, maths: _Arithmetic) -> Any:
        """The share of the peak, ``elapsed`` steps after the warm-up."""
        span = self.total - self.warmup
        match self.kind:
            case "constant" | "plateau":
                return maths.real(1)
            case "exponential":
                # As an exponential: the power of a rounded base would be off by its number of times as much.
                return maths.exp(maths.real(elapsed // self.decay_every) * math.log(self.decay))
            case "cosine":
                # cos² of half the angle: (1 + cos) / 2 would lose its last digits to cancellation near the end.
                half_angle = maths.real(maths.minimum(elapsed, span)) * (math.pi / 2 / span)
                return self.final + (1 - self.final) * maths.cos(half_angle) ** 2
            case "one_cycle":
                left = maths.real(maths.maximum(span - elapsed, 0)) / span
                return self.final + (1 - self.final) * left


def build_schedule(settings: ScheduleSettings, total_steps: int, steps_per_epoch: int, batch_size: int) -> Schedule:
    """A recipe's schedule with its durations in steps.

    Args:
        settings: the recipe's.
        total_steps: the whole training.
        steps_per_epoch: to turn epochs into steps.
        batch_size: to turn examples into steps.

    Raises:
        SettingsError: the warm-up is not shorter than the training, or ``decay_every`` is nothing.
    """
    warmup = settings.warmup.of(total_steps, steps_per_epoch, batch_size)
    decay_every = settings.decay_every.of(total_steps, steps_per_epoch, batch_size)
    if warmup >= total_steps:
        raise SettingsError(f"warm-up of {warmup} steps vs {total_steps} steps of training: shorten it or train longer")
    if settings.kind == "exponential" and decay_every < 1:
        raise SettingsError(f"decay_every={settings.decay_every!r} is no steps; give at least one")
    return Schedule(
        settings.kind, settings.learning_rate, warmup, total_steps, settings.final, settings.decay, decay_every
    )
