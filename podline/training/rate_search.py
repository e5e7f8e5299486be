"""Reads a learning rate off a curve of losses. This module is pure arithmetic.

Smith: "Cyclical Learning Rates for Training Neural Networks", WACV 2017, section 3.3, raises the rate from step to step
and looks where the loss falls and where it stops falling. A loss of one small batch is noisy, so it is smoothed. The
moving average that ends the search lags behind. The curve that rates are read off is smoothed forwards and backwards,
so its features keep their places.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from podline.errors import DivergenceError
from podline.frozen import Frozen
from podline.recipes.settings import ScheduleSettings
from podline.training.divergence import scaled

Curve = npt.NDArray[np.float64]

# The weight of the previous average: the average covers about the last 10 losses.
_SMOOTHING = 0.9
# The search ends when the smoothed loss is this multiple of its lowest value …
_EXPLODED = 4.0
# … and a curve needs this number of losses.
LEAST_STEPS = 20
# Losses are capped at this multiple of the first ones; otherwise smoothing would spread them over earlier steps.
_MOST = 1.5
# The valley's floor begins where the loss has done this share of its fall. Its middle varies less between searches than
# its lowest point, which noise decides.
_FLOOR = 0.9
# The blow-up begins where the loss has permanently lost this share of its fall.
_LOST = 0.5
# A fall or rise below this number of standard errors of the smoothed loss counts as noise.
_CHANCE = 5.0
# The suggested rate is at most this share of the rate at which the loss blows up.
_BELOW_BLOW_UP = 4.0
# The peak of each schedule, as a share of the floor's middle; a schedule that is long at its peak gets a lower one. See
# docs/how-to/learning-rate.md for the measurements.
_SHARES = {"one_cycle": 1.25, "cosine": 1.0, "exponential": 0.5, "constant": 0.25, "plateau": 0.25}


class Suggestion(Frozen):
    """A suggested learning rate and its reasons.

    Attributes:
        learning_rate: the rate to train with, as the peak of the recipe's schedule.
        floor: the lowest and highest rate with a loss near its lowest, or None if the loss never falls.
        blow_up: the rate at which the loss has permanently lost half of its fall, or None if it never does.
        reasons: an explanation, one sentence each.
    """

    learning_rate: float
    floor: tuple[float, float] | None
    blow_up: float | None
    reasons: tuple[str, ...]


def moving_average(losses: npt.ArrayLike) -> Curve:
    """Return the exponential moving average without the bias towards its start, float64 (n,).

    Kingma, Ba: "Adam", ICLR 2015, section 3.
    """
    values = np.asarray(losses, np.float64)
    averages, average = np.empty_like(values), 0.0
    for index, value in enumerate(values):
        average = _SMOOTHING * average + (1 - _SMOOTHING) * value
        averages[index] = average / (1 - _SMOOTHING ** (index + 1))
    return averages


def smoothed(losses: npt.ArrayLike) -> Curve:
    """Return the mean of the forward and backward moving averages, so that features keep their steps."""
    values = np.asarray(losses, np.float64)
    return (moving_average(values) + moving_average(values[::-1])[::-1]) / 2


def explodes_at(losses: Sequence[float]) -> int | None:
    """Return the first step, from 0, whose loss has exploded, or None.

    A loss has exploded if it is not finite, or if its moving average is four times the lowest average and twice the
    highest one of the first steps. The second bound matters for trained weights, whose small losses vary by this much.
    """
    values = np.asarray(losses, np.float64)
    finite = np.isfinite(values)
    end = len(values) if finite.all() else int(np.argmin(finite))
    averages = moving_average(values[:end])
    usual = float(np.max(averages[:LEAST_STEPS], initial=-math.inf))
    limits = np.maximum(scaled(np.minimum.accumulate(averages), _EXPLODED), scaled(usual, 2))
    exploded = np.flatnonzero(averages > limits)
    if exploded.size:
        return int(exploded[0])
    return None if end == len(values) else end


def suggest(rates: Sequence[float], losses: Sequence[float], schedule: ScheduleSettings) -> Suggestion:
    """Read a learning rate off a curve.

    Raises:
        DivergenceError: the curve is too short, or the loss does not change.
    """
    if len(losses) < LEAST_STEPS:
        raise DivergenceError(
            f"the loss exploded after {len(losses)} steps with rates from {rates[0]:.3g} on, expected at least "
            f"{LEAST_STEPS} steps: begin with a lower rate, or take more steps"
        )
    bounded = np.minimum(losses, scaled(float(np.mean(losses[: LEAST_STEPS // 4])), _MOST))
    curve = smoothed(bounded)
    bottom = int(np.argmin(curve))
    start, lowest = float(np.mean(curve[: max(bottom // 5, 1)])), float(curve[bottom])
    # The error comes from differences of neighbours, which contain no trend, in the mean of two averages.
    deviation = float(np.std(np.diff(bounded[: bottom + LEAST_STEPS]))) / math.sqrt(2)
    chance, fall = _CHANCE * deviation * math.sqrt((1 - _SMOOTHING) / 2), start - lowest
    after = int(np.flatnonzero(curve < lowest + max(_LOST * fall, chance))[-1]) + 1
    blow_up = float(rates[after]) if after < len(rates) else None
    if fall > chance:
        low = np.flatnonzero(curve <= start - _FLOOR * fall)
        floor = float(rates[low[0]]), float(rates[low[-1]])
        begun = f"the loss falls from {start:.3g} to {lowest:.3g}; nine tenths of that are done from"
        return _in_the_floor(floor, blow_up, schedule, begun, rates[-1])
    if blow_up is not None:
        return _below_the_blow_up(blow_up)
    raise DivergenceError(
        f"the loss neither falls nor rises from {start:.4g} with rates from {rates[0]:.3g} to {rates[-1]:.3g}; "
        "search other rates, take more steps, or look at the data"
    )


def _in_the_floor(
    floor: tuple[float, float], blow_up: float | None, schedule: ScheduleSettings, begun: str, last: float
) -> Suggestion:
    low, high = floor
    middle, share = math.sqrt(low * high), _SHARES[schedule.kind]
    rate = middle * share
    reasons = [
        f"{begun} {low:.2g} to {high:.2g}; its middle is {middle:.2g}",
        f"the schedule {schedule.kind} gets {share:g} times that as its peak: {rate:.2g}",
    ]
    if blow_up is None:
        reasons.append(f"the loss does not blow up until the last rate, {last:.2g}")
    else:
        limit = blow_up / _BELOW_BLOW_UP
        kept = "the suggestion is below" if rate <= limit else "the suggestion is lowered to"
        reasons.append(f"the loss blows up at {blow_up:.2g}; {kept} a quarter of that, {limit:.2g}")
        rate = min(rate, limit)
    return Suggestion(learning_rate=_two_digits(rate), floor=floor, blow_up=blow_up, reasons=tuple(reasons))


def _below_the_blow_up(blow_up: float) -> Suggestion:
    """Suggest a rate for fully trained weights: no rate lowers their loss, but a high rate damages them."""
    return Suggestion(
        learning_rate=_two_digits(blow_up / _BELOW_BLOW_UP),
        floor=None,
        blow_up=blow_up,
        reasons=(
            "the loss does not fall at any rate by more than chance explains: these weights were trained already",
            f"it blows up at {blow_up:.2g}; the suggestion is a quarter of that, which is the highest safe rate",
        ),
    )


def _two_digits(rate: float) -> float:
    return float(f"{rate:.2g}")


_INK, _MUTED, _RULE, _CURVE, _CHOSEN, _BLOW_UP = "#1c1c1c", "#6b6b6b", "#dcdcdc", "#1f6feb", "#1a7f37", "#c0392b"
_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "text.color": _INK,
    "axes.edgecolor": _RULE,
    "axes.labelcolor": _MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
}


def rate_chart(rates: Sequence[float], losses: Sequence[float], found: Suggestion, title: str) -> bytes:
    """Draw the search as a PNG."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, 4.2), dpi=144, layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        smooth = smoothed(losses)
        axes.semilogx(rates, losses, color=_CURVE, alpha=0.25, linewidth=0.8)
        axes.semilogx(rates, smooth, color=_CURVE, linewidth=1.8, label="loss, smoothed")
        if found.floor is not None:
            low, high = found.floor
            axes.axvspan(
                low, high, color=_MUTED, alpha=0.12, linewidth=0, label=f"near its lowest, {low:.2g} to {high:.2g}"
            )
        if found.blow_up is not None:
            axes.axvline(
                found.blow_up, color=_BLOW_UP, linestyle="--", linewidth=1.2, label=f"blows up, {found.blow_up:.2g}"
            )
        axes.axvline(found.learning_rate, color=_CHOSEN, linewidth=1.8, label=f"suggested, {found.learning_rate:g}")
        # A loss explosion at the end would hide the curve before it.
        first, lowest = float(np.mean(smooth[:5])), float(smooth.min())
        axes.set_ylim(min(lowest, *losses), min(max(losses), 2 * first - lowest + 0.1 * abs(first)))
        axes.set_xlabel("learning rate")
        axes.set_ylabel("loss of a step")
        axes.set_title(f"Learning rate: {found.learning_rate:g}", loc="left", fontsize=13, fontweight="bold", pad=22)
        axes.text(0, 1.03, title, transform=axes.transAxes, color=_MUTED)
        axes.legend(frameon=False, loc="best")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return buffer.getvalue()
