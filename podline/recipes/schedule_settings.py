"""Defines the settings of the learning rate, and of plateau, early stop and annealing."""

from __future__ import annotations

import functools
import math
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from podline.base.frozen import Frozen, Json, is_object, omitted
from podline.recipes.bounds import MOST, NAME
from podline.recipes.durations import Part
from podline.recipes.uses import require_effects

WITHOUT_MEASURE = ("loss", "error")
"""Metrics for plateau, early stop and annealing that are not measures."""
S = TypeVar("S", bound=Frozen)
_Delta = Annotated[float, Field(ge=0, le=1e9)]
_Share = Annotated[float, Field(ge=0, lt=1)]


def _one_of(name: str, other: str, settings: S) -> S:
    """Check that at most one of two settings with the same meaning in different units is given."""
    first, second = (dict(settings)[each] for each in (name, other))
    if first is not None and second is not None:
        raise ValueError(f"{name}={first} vs {other}={second}: both bound the same value; give one of them")
    return settings


class PlateauSettings(Frozen):
    """When and how to lower the learning rate because validation stalls, as Keras's ``ReduceLROnPlateau`` does.

    Attributes:
        metric: the metric that must improve: the validation ``loss``, ``error`` (1 - accuracy), or a measure.
        factor: factor by which the rate is multiplied when validation stalls.
        patience: number of consecutive evaluations without an improvement after which the rate is lowered.
        min_delta: least improvement.
        min_delta_share: instead of ``min_delta``, the least improvement as a share of the best value so far; 0.01 if
            neither is given.
        min_lr: the least rate.
        min_rate_share: instead of ``min_lr``, the least rate as a share of the schedule's rate; 0.001 if neither is
            given.
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
        learning_rate: the peak; by default the optimizer's default, such as 0.01 of ``sgd`` and 0.001 of ``adam``.
        warmup: length of a linear rise at the beginning of the schedule.
        final: share of the peak at the end of ``cosine``, ``polynomial`` and ``one_cycle``, and of each cosine of
            ``restarts``.
        decay: the factor of ``exponential``.
        decay_every: the interval at which ``exponential`` applies its factor.
        power: exponent of ``polynomial``; 1 is a line.
        period: length of the first cosine of ``restarts``.
        period_factor: factor of the length from each cosine of ``restarts`` to the next.
        peak_factor: factor of the peak from each cosine of ``restarts`` to the next.
        boundaries: for ``step``: where the rate changes, for example ``[{"share": 0.5}, {"share": 0.75}]``.
        shares: for ``step``: the share of the peak from each boundary on.
        by_phase: whether the schedule begins again in each phase, over the phase's length instead of the training's.
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
    power: float = omitted(1.0, gt=0, le=100)
    period: Part = omitted(Part(epochs=1))
    period_factor: float = omitted(2.0, ge=1, le=100)
    peak_factor: float = omitted(1.0, gt=0, le=1)
    boundaries: tuple[Part, ...] = omitted(())
    shares: tuple[Annotated[float, Field(ge=0, le=1_000)], ...] = omitted(())
    by_phase: bool = omitted(False)
    plateau: PlateauSettings | None = omitted(None)

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
        temperature: initial temperature, in units of the energy; a state whose energy is higher by this value is
            accepted with probability 37 %.
        final: the final temperature as a share of the initial one; the temperature falls by a constant factor per step.
    """

    energy: Literal["loss", "error"] = "loss"
    temperature: float = Field(default=0.02, gt=0)
    final: float = Field(default=0.01, gt=0, le=1)


class EarlyStopSettings(Frozen):
    """When a run ends because validation stalls, and which state it keeps, as Keras's ``EarlyStopping`` does.

    Attributes:
        metric: the metric that must improve: the validation ``loss``, ``error`` (1 - accuracy), or a measure.
        patience: number of consecutive evaluations without an improvement after which the run ends, or their share of
            all evaluations. The run never ends before its last phase. None for never.
        min_delta: least improvement; 0 if neither ``min_delta`` nor ``min_delta_share`` is given.
        min_delta_share: instead of ``min_delta``, the least improvement as a share of the best value so far.
        restore: whether the run keeps its best state, even if it does not end early. The best state has the best
            metric; for ``error``, it is the latest within a standard error of the lowest error.
    """

    metric: str = Field(default="loss", pattern=NAME)
    patience: Annotated[int, Field(ge=1, le=MOST)] | Annotated[float, Field(gt=0, lt=1)] | None = 3
    min_delta: _Delta | None = None
    min_delta_share: _Share | None = None
    restore: bool = True

    _one_delta = model_validator(mode="after")(functools.partial(_one_of, "min_delta", "min_delta_share"))

    def stalls(self, evaluations: int) -> float:
        """Return after how many evaluations without an improvement a run ends, of ``evaluations``; infinity: never."""
        if self.patience is None:
            return math.inf
        return self.patience if self.patience >= 1 else max(math.ceil(self.patience * evaluations), 1)
