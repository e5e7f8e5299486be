"""One line of the benchmark's answer: a figure of ours beside the same figure of the plain way."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from podline.base.frozen import Frozen


class BenchmarkRow(Frozen):
    """A comparison.

    Attributes:
        name: the benchmark's name; one that measures several things adds ``-bytes`` or ``-memory``.
        ours: our figure, in ``unit``.
        other: the plain way's figure, in ``unit``.
        ratio: how many times better ours is: above 1 is better, whether ``unit`` is a rate, a time or a size.
        unit: ``images/s``, ``s``, ``bytes`` …
        note: what the two sides are, and on how much input.
    """

    name: str
    ours: float
    other: float
    ratio: float
    unit: str
    note: str


def rate_row(
    name: str, *, count: int, ours: Sequence[float], other: Sequence[float], unit: str, note: str
) -> BenchmarkRow:
    """Return a row of rates: ``count`` things in the median of each side's seconds; more is better."""
    ours_seconds, other_seconds = median(ours), median(other)
    return BenchmarkRow(
        name=name,
        ours=count / ours_seconds,
        other=count / other_seconds,
        ratio=other_seconds / ours_seconds,
        unit=unit,
        note=note,
    )


def cost_row(name: str, *, ours: Sequence[float], other: Sequence[float], unit: str, note: str) -> BenchmarkRow:
    """Return a row of costs (seconds, bytes), by the median of each side; less is better."""
    ours_cost, other_cost = median(ours), median(other)
    return BenchmarkRow(name=name, ours=ours_cost, other=other_cost, ratio=other_cost / ours_cost, unit=unit, note=note)
