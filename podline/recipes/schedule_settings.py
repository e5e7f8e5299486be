"""Settings of the learning rate, and of decisions by evaluations: plateau, early stop, annealing."""

from __future__ import annotations

import functools
import math
import operator
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from podline.base.frozen import Frozen, Json, is_object
from podline.recipes.bounds import MOST, NAME
from podline.recipes.durations import Part
from podline.recipes.uses import require_effects

WITHOUT_MEASURE = ("loss", "error")
"""The metrics of decisions that are no measures."""
S = TypeVar("S", bound=Frozen)
_Delta = Annotated[float, Field(ge=0, le=1e9)]
_Share = Annotated[float, Field(ge=0, lt=1)]


def _one_of(name: str, other: str, settings: S) -> S:
    """Refuse two settings that say the same in different units."""
    first, second = (dict(settings)[each] for each in (name, other))
    if first is not None and second is not None:
        raise ValueError(f"{name}={first} vs {other}={second}: both bound the same; give one of them")
    return settings


class PlateauSettings(Frozen):
    """When and how to lower the learning rate because validation stalls, as Keras's ``ReduceLROnPlateau`` does.

    Attributes:
        metric: the metric that must improve: the validation ``loss``, ``error`` (1 - accuracy), or a measure.
        factor: the rate is multiplied by this factor …
        patience: … after this number of consecutive evaluations without an improvement.
        min_delta: least improvement.
        min_delta_share: instead, least improvement as a share of the best value so far; 0.01 if neither is given.
        min_lr: the rate is not lowered below this.
        min_rate_share: instead, the least share of the schedule's rate; 0.001 if neither is given.
        cooldown: number of evaluations after a reduction before evaluations without an improvement count again.
    """

    metric: str = Field(default="loss", pattern=NAME)
    factor: float = Field(default=0.3, gt=0, lt=1)
    patience: int = Field(default=2, ge=1, le=MOST)
    min_delta: _Delta | None = None
    min_delta_share: _Share | None = None
    min_lr: _Delta | None = None
    min_rate_share: _Share | None = None
    cooldown: int = Field(default=0, ge=0, le=MOST)

    _one_delta = model_validator(mode="after")(functools.partial(_one_of, "min_delta", "min_delta_share"))
    _one_least = model_validator(mode="after")(functools.partial(_one_of, "min_lr", "min_rate_share"))


class ScheduleSettings(Frozen):
    """The learning rate as a function of the step.

    Attributes:
        kind: ``constant``; ``exponential`` (times ``decay`` every ``decay_every``); ``cosine`` (to ``final`` of the
            peak); ``restarts`` (cosines one after another); ``polynomial`` (to ``final``, with ``power``); ``step``
            (``shares`` of the peak from ``boundaries`` on); ``one_cycle`` (up for ``warmup``, then linearly down to
            ``final``); ``plateau`` (constant until validation stalls).
        learning_rate: the peak; by default the optimizer's own, as 0.01 of ``sgd`` and 0.001 of ``adam``.
        warmup: a linear rise before the schedule; for ``one_cycle`` the rise itself.
        final: share of the peak at the end of ``cosine``, ``polynomial`` and ``one_cycle``, and of each cosine of
            ``restarts``.
        decay: the factor of ``exponential``.
        decay_every: the interval at which ``exponential`` applies its factor.
        power: exponent of ``polynomial``; 1 is a line.
        period: length of the first cosine of ``restarts`` …
        period_factor: … and factor of the length of each further one.
        peak_factor: factor of the peak of each further cosine.
        boundaries: for ``step``: where the rate changes, as ``[{"share": 0.5}, {"share": 0.75}]``.
        shares: for ``step``: the share of the peak from each boundary on.
        by_phase: whether it begins again in each phase, with the phase's length in place of the training's.
        plateau: when ``plateau`` lowers the rate, and by which factor.
    """

    kind: Literal["constant", "exponential", "cosine", "restarts", "polynomial", "step", "one_cycle", "plateau"] = (
        "cosine"
    )
    learning_rate: float = Field(default=0.01, gt=0, le=1_000)
    warmup: Part = Part(steps=0)
    final: float = Field(default=0.0, ge=0, le=1)
    decay: float = Field(default=0.97, gt=0, le=1)
    decay_every: Part = Part(epochs=1)
    power: float = Field(default=1.0, gt=0, le=100, exclude_if=lambda power: power == 1)
    period: Part = Field(default=Part(epochs=1), exclude_if=lambda period: period == Part(epochs=1))
    period_factor: float = Field(default=2.0, ge=1, le=100, exclude_if=lambda factor: factor == 2)
    peak_factor: float = Field(default=1.0, gt=0, le=1, exclude_if=lambda factor: factor == 1)
    boundaries: tuple[Part, ...] = Field(default=(), exclude_if=operator.not_)
    shares: tuple[Annotated[float, Field(ge=0, le=1_000)], ...] = Field(default=(), exclude_if=operator.not_)
    by_phase: bool = Field(default=False, exclude_if=operator.not_)
    plateau: PlateauSettings | None = Field(default=None, exclude_if=lambda value: value is None)

    @model_validator(mode="before")
    @classmethod
    def _plateau_has_settings(cls, values: Json) -> Json:
        if is_object(values) and values.get("kind") == "plateau" and values.get("plateau") is None:
            return {**values, "plateau": PlateauSettings()}
        return values

    @model_validator(mode="after")
    def _steps_have_shares(self) -> ScheduleSettings:
        if len(self.boundaries) != len(self.shares) or (self.kind == "step" and not self.boundaries):
            raise ValueError(
                f"got {len(self.boundaries)} boundaries and {len(self.shares)} shares, expected one share for each "
                "boundary, and at least one for kind=step"
            )
        return self

    _effects = model_validator(mode="after")(functools.partial(require_effects, "schedule"))


class AnnealingSettings(Frozen):
    """Simulated annealing: accepts or rejects the state after each evaluation.

    Attributes:
        energy: the metric that should fall: the validation ``loss``, or ``error`` (1 - accuracy).
        temperature: initial temperature in units of the energy: a state with an energy higher by this value is accepted
            with probability 37 %.
        final: final share of the temperature, which falls by a constant factor per step.
    """

    energy: Literal["loss", "error"] = "loss"
    temperature: float = Field(default=0.02, gt=0)
    final: float = Field(default=0.01, gt=0, le=1)


class EarlyStopSettings(Frozen):
    """How validation chooses the state that a run ends with, and when it ends, as Keras's ``EarlyStopping`` does.

    Attributes:
        metric: the metric that must improve: the validation ``loss``, ``error`` (1 - accuracy), or a measure.
        patience: the run ends after this number of consecutive evaluations without an improvement, or this share of its
            evaluations, but not before its last phase; None for never.
        min_delta: least improvement; 0 if neither is given.
        min_delta_share: instead, least improvement as a share of the best value so far.
        restore: whether the run ends with its best state, early or not: the one with the best metric, or the latest
            with an error within a standard error of the lowest.
    """

    metric: str = Field(default="loss", pattern=NAME)
    patience: Annotated[int, Field(ge=1, le=MOST)] | Annotated[float, Field(gt=0, lt=1)] | None = 3
    min_delta: _Delta | None = None
    min_delta_share: _Share | None = None
    restore: bool = True

    _one_delta = model_validator(mode="after")(functools.partial(_one_of, "min_delta", "min_delta_share"))

    def stalls(self, evaluations: int) -> float:
        """Return the number of evaluations without an improvement that ends a run with some evaluations."""
        if self.patience is None:
            return math.inf
        return self.patience if self.patience >= 1 else max(math.ceil(self.patience * evaluations), 1)
