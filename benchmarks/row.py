"""The result of a benchmark: a value of Podline beside the same value of the plain way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from podline.base.frozen import Frozen

Measured = Mapping[str, Sequence[float]]
"""``ours`` and ``other`` → the value of each repetition."""


class BenchmarkRow(Frozen):
    """A comparison.

    Attributes:
        name: the benchmark's name; a benchmark with several rows adds an ending, such as ``-memory``.
        ours: Podline's value, in ``unit``.
        other: the value of the plain way, in ``unit``.
        ratio: by which factor Podline is better: above 1 is better for rates, times and sizes.
        unit: ``images/s``, ``s``, ``bytes`` …
        note: description of the two sides and of their input.
    """

    name: str
    ours: float
    other: float
    ratio: float
    unit: str
    note: str


def rate_row(name: str, seconds: Measured, count: int, note: str, unit: str = "images/s") -> BenchmarkRow:
    """Return a row of rates, where more is better: ``count`` divided by the median seconds of each side."""
    ours, other = median(seconds["ours"]), median(seconds["other"])
    return BenchmarkRow(name=name, ours=count / ours, other=count / other, ratio=other / ours, unit=unit, note=note)


def cost_row(name: str, costs: Measured, note: str, unit: str) -> BenchmarkRow:
    """Return a row of costs, such as seconds or bytes, where less is better: the median of each side."""
    ours, other = median(costs["ours"]), median(costs["other"])
    return BenchmarkRow(name=name, ours=ours, other=other, ratio=other / ours, unit=unit, note=note)
