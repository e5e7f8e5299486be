"""Reads a learning rate off a curve of losses. Pure arithmetic.

Smith: "Cyclical Learning Rates for Training Neural Networks", WACV 2017, section 3.3, raises the rate from step to step
and looks where the loss falls and where it stops falling. A loss is that of one small batch, so it is smoothed, with
several strengths, and what they agree on is taken. The moving average that the search is stopped by lags behind; the
curve that rates are read off is smoothed forwards and backwards, which leaves its features where they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podline.errors import DivergenceError
from podline.frozen import Frozen
from podline.recipes.settings import ScheduleSettings

Curve = npt.NDArray[np.float64]

# What is left of the average at each step; 0.8 looks at about the last 5 losses, 0.95 at the last 20.
SMOOTHINGS = (0.8, 0.9, 0.95)
SHOWN_SMOOTHING = 0.9
# The search ends when the smoothed loss is this many times its lowest …
_EXPLODED = 4.0
# … and a curve needs this many losses to be read.
LEAST_STEPS = 20
# Losses above this many times the first ones say no more than that; smoothing would spread them over the steps before.
_MOST = 1.5
# The floor of the valley is where the loss has done so much of its fall; its middle moves less from one search to the
# next than its lowest point, which noise chooses.
_FLOOR = 0.9
# The loss is on its way up for good when it has lost so much of its fall.
_LOST = 0.5
# A fall, or a rise, of fewer standard errors of the smoothed loss than this is taken for chance.
_CHANCE = 5.0
# A rate keeps so far below the one at which the loss blows up.
_BELOW_BLOW_UP = 4.0
_AGREEING = 2.0
# How much of the floor's middle a schedule bears as its peak: it is high for a part of the training, or for all of it.
# See docs/learning-rate.md for what was measured.
_SHARES = {"one_cycle": 1.25, "cosine": 1.0, "exponential": 0.5, "constant": 0.25, "plateau": 0.25}


class Suggestion(Frozen):
    """A learning rate and what speaks for it.

    Attributes:
        learning_rate: the rate to train with, as the peak of the recipe's schedule.
        floor: from which rate to which the loss is near its lowest: the mean of what the smoothings say, or None if it
            never falls.
        steepest: where it falls fastest; None if it never falls.
        blow_up: where it has lost half of its fall for good, or None: it does not, up to the last rate.
        reasons: the same in words, a sentence each.
    """

    learning_rate: float
    floor: tuple[float, float] | None
    steepest: float | None
    blow_up: float | None
    reasons: tuple[str, ...]


def moving_average(losses: npt.ArrayLike, smoothing: float) -> Curve:
    """The exponential moving average, without its bias towards where it starts (Kingma, Ba: "Adam", ICLR 2015).

    Args:
        losses: shape (n,).
        smoothing: what is left of the average at each step, 0…1.

    Returns:
        float64, shape (n,).
    """
    values = np.asarray(losses, np.float64)
    averages, average = np.empty_like(values), 0.0
    for index, value in enumerate(values):
        average = smoothing * average + (1 - smoothing) * value
        averages[index] = average / (1 - smoothing ** (index + 1))
    return averages


def without_lag(losses: npt.ArrayLike, smoothing: float) -> Curve:
    """The mean of the moving averages forwards and backwards: as smooth, and nothing is moved to later steps."""
    values = np.asarray(losses, np.float64)
    return (moving_average(values, smoothing) + moving_average(values[::-1], smoothing)[::-1]) / 2


def explodes_at(losses: Sequence[float]) -> int | None:
    """The first step, from 0, at which the losses leave what can be read off; or None.

    Its loss is no finite number; or its moving average is four times the lowest one, and twice what it ever was in the
    first steps: the losses of weights that were trained already are small and differ by as much.
    """
    values = np.asarray(losses, np.float64)
    finite = np.isfinite(values)
    end = len(values) if finite.all() else int(np.argmin(finite))
    averages = moving_average(values[:end], SHOWN_SMOOTHING)
    usual = float(np.max(averages[:LEAST_STEPS], initial=0.0))
    limits = np.maximum(_EXPLODED * np.minimum.accumulate(averages), 2 * usual)
    exploded = np.flatnonzero(averages > limits)
    if exploded.size:
        return int(exploded[0])
    return None if end == len(values) else end


def suggest(rates: Sequence[float], losses: Sequence[float], schedule: ScheduleSettings) -> Suggestion:
    """Reads a learning rate off a curve.

    Args:
        rates: rising.
        losses: the loss of a step at each of them; finite.
        schedule: the suggestion is for its peak.

    Raises:
        DivergenceError: the curve is too short to be read, or the loss does nothing at all.
    """
    if len(losses) < LEAST_STEPS:
        raise DivergenceError(
            f"the loss exploded after {len(losses)} steps vs at least {LEAST_STEPS} that a curve needs, with rates "
            f"from {rates[0]:.3g} on: begin lower, or take more steps"
        )
    valleys = [_Valley.of(losses, smoothing) for smoothing in SMOOTHINGS]
    shown = valleys[SMOOTHINGS.index(SHOWN_SMOOTHING)]
    blow_up = _rate(rates, shown.blow_up)
    if shown.falls:
        return _in_the_floor(rates, valleys, shown, blow_up, schedule)
    if blow_up is not None:
        return _below_the_blow_up(blow_up)
    raise DivergenceError(
        f"the loss neither falls nor rises from {shown.start:.4g} with rates from {rates[0]:.3g} to {rates[-1]:.3g}; "
        "search other rates, take more steps, or look at the data"
    )


@dataclass(frozen=True)
class _Valley:
    """A smoothed curve, by its steps.

    Attributes:
        curve: the smoothed losses.
        start: the loss while the rate is too low to matter.
        bottom: the step of the lowest loss.
        chance: how much of a fall or rise chance alone may explain.
    """

    curve: Curve
    start: float
    bottom: int
    chance: float

    @classmethod
    def of(cls, losses: Sequence[float], smoothing: float) -> _Valley:
        first = float(np.mean(losses[: LEAST_STEPS // 4]))
        bounded = np.minimum(losses, _MOST * first)
        curve = without_lag(bounded, smoothing)
        bottom = int(np.argmin(curve))
        # Of the differences of neighbours, which hold no trend; of the mean of two averages over about 2/(1-s) losses.
        deviation = float(np.std(np.diff(bounded[: bottom + LEAST_STEPS]))) / math.sqrt(2)
        error = deviation * math.sqrt((1 - smoothing) / 2)
        return cls(curve, float(np.mean(curve[: max(bottom // 5, 1)])), bottom, _CHANCE * error)

    @property
    def fall(self) -> float:
        return self.start - float(self.curve[self.bottom])

    @property
    def falls(self) -> bool:
        return self.fall > self.chance

    @property
    def floor(self) -> tuple[int, int]:
        """The first and the last step at which the loss has done most of its fall."""
        low = np.flatnonzero(self.curve <= self.start - _FLOOR * self.fall)
        return int(low[0]), int(low[-1])

    @property
    def steepest(self) -> int:
        """The step of the fastest fall, but for the first ones, in which an average is of few losses."""
        first = min(self.bottom, len(self.curve) // 10)
        return first + int(np.argmin(np.gradient(self.curve)[first : self.bottom + 1]))

    @property
    def blow_up(self) -> int | None:
        """The first step after which the loss stays far above its lowest."""
        calm = np.flatnonzero(self.curve < self.curve[self.bottom] + max(_LOST * self.fall, self.chance))
        after = int(calm[-1]) + 1
        return after if after < len(self.curve) else None


def _rate(rates: Sequence[float], step: int | None) -> float | None:
    return None if step is None else float(rates[step])


def _in_the_floor(
    rates: Sequence[float],
    valleys: Sequence[_Valley],
    shown: _Valley,
    blow_up: float | None,
    schedule: ScheduleSettings,
) -> Suggestion:
    floors = [(rates[first], rates[last]) for first, last in (valley.floor for valley in valleys)]
    centres = [math.sqrt(low * high) for low, high in floors]
    low, high = (_mean([floor[side] for floor in floors]) for side in (0, 1))
    middle, share = _mean(centres), _SHARES[schedule.kind]
    rate = middle * share
    agree = max(centres) <= _AGREEING * min(centres)
    said = ", ".join(f"{low:.2g} to {high:.2g}" for low, high in floors)
    fall = f"the loss falls from {shown.start:.3g} to {shown.curve[shown.bottom]:.3g}"
    smoothings = ", ".join(map(str, SMOOTHINGS))
    reasons = [
        f"{fall}; nine tenths of that are done from {said} with smoothings {smoothings}; its middle is {middle:.2g}",
        "the smoothings agree" if agree else "the smoothings do not agree: take more steps, and try several rates",
        f"the schedule {schedule.kind} bears {share:g} times that as its peak: {rate:.2g}",
    ]
    if blow_up is None:
        reasons.append(f"the loss does not blow up until the last rate, {rates[-1]:.2g}")
    else:
        limit = blow_up / _BELOW_BLOW_UP
        kept = "the suggestion is below" if rate <= limit else "the suggestion is lowered to"
        reasons.append(f"the loss blows up at {blow_up:.2g}; {kept} a quarter of that, {limit:.2g}")
        rate = min(rate, limit)
    steepest = float(rates[valleys[-1].steepest])
    reasons.append(f"the loss falls fastest at {steepest:.2g}")
    return Suggestion(
        learning_rate=_two_digits(rate), floor=(low, high), steepest=steepest, blow_up=blow_up, reasons=tuple(reasons)
    )


def _below_the_blow_up(blow_up: float) -> Suggestion:
    """For weights that were trained to the end: no rate makes their loss fall, but a high one spoils them."""
    rate = blow_up / _BELOW_BLOW_UP
    return Suggestion(
        learning_rate=_two_digits(rate),
        floor=None,
        steepest=None,
        blow_up=blow_up,
        reasons=(
            "the loss does not fall at any rate by more than chance explains: these weights were trained already",
            f"it blows up at {blow_up:.2g}; the suggestion is a quarter of that, the most that seems safe",
        ),
    )


def _mean(values: Sequence[float]) -> float:
    """The geometric mean: rates are compared by their ratios."""
    return math.exp(float(np.mean(np.log(values))))


def _two_digits(rate: float) -> float:
    return float(f"{rate:.2g}")
