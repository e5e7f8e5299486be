"""Describes whether random variation explains a difference: one phrase for each case, for pages and commands."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from podline.contract.noise import Noise
from podline.recipes.measures import change_bound, change_text, measure_named

Word = Literal["better", "worse", "noise"]


class ChanceCase(StrEnum):
    """The verdicts on whether seeds and the test examples explain a difference; docs/explanation/comparison.md."""

    USUAL = "no more than chance"
    RARE = "fewer than one pair of equal models in twenty differ as much; train another seed to decide"
    BEYOND = "more than seeds usually do"

    @classmethod
    def of(cls, change: float, noise: Noise, sampled: float, tests: int = 1) -> ChanceCase:
        """Return whether random variation explains a change.

        Args:
            change: the change of a figure.
            noise: the random variation between trainings.
            sampled: see :meth:`podline.contract.noise.Noise.limit`.
            tests: number of figures that are tested together.
        """
        if abs(change) > noise.limit(sampled, _ALARM / tests / 2):
            return cls.BEYOND
        return cls.RARE if abs(change) > noise.limit(sampled, _LEVEL / tests / 2) else cls.USUAL

    def said(self, *, measured: bool) -> str:
        """Return the phrase; if the spread between seeds is assumed, add that to :data:`BEYOND`."""
        return self if self is not ChanceCase.BEYOND or measured else f"{self}, by the assumed spread between seeds"


# Two-sided shares of equal models. A month of equal nights has a false alarm in one month of 30.
_LEVEL, _ALARM = 0.05, 0.001


def word_of(name: str, change: float, chance: ChanceCase) -> Word:
    """Return the verdict on a metric's change: better or worse if the change is significant, else noise."""
    if chance is not ChanceCase.BEYOND:
        return "noise"
    return "better" if measure_named(name).better(change, 0) else "worse"


def signed(measure: str, change: float) -> str:
    """Return a change with its direction as text: ``5.4 points worse``, or ``the same`` if it rounds to 0."""
    by = change_text(measure, abs(change)).removeprefix("+")
    if not by.strip("0. points"):
        return "the same"
    return f"{by} {'better' if measure_named(measure).better(change, 0) else 'worse'}"


def ends(measure: str, low: float, high: float) -> str:
    """Return an interval of a change as text."""
    return f"[{change_bound(measure, low)}, {change_bound(measure, high)}]"
