"""Draws line charts and sparklines over nights as SVG without matplotlib, whose import takes long."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from markupsafe import Markup

from podline.base import figures
from podline.base.drawing.svg import Svg
from podline.recipes import measures
from podline.recipes.measures import measure_named

_WIDTH, _HEIGHT = 331.0, 130.0
_SPARK_WIDTH, _SPARK_HEIGHT, _MARGIN = 72.0, 18.0, 3.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 6.0, 8.0, 20.0
MOST_POINTS = 500
"""Largest number of points of a curve."""
T = TypeVar("T")
# Seconds between ticks: round numbers of minutes, hours and days.
_TIMES = (30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000)


class Point(NamedTuple):
    """A night's value in a chart.

    Attributes:
        time: Unix time of the night's end.
        value: value of the chart's quantity.
        low: lower end of the interval; equal to ``value`` without an interval.
        high: upper end of the interval; equal to ``value`` without an interval.
        floor: the threshold beyond which a model is refused; None without a promotion.
        promoted: whether the model became the champion.
        below: whether the value is worse than the floor; False without one.
    """

    time: float
    value: float
    low: float
    high: float
    floor: float | None = None
    promoted: bool = False
    below: bool = False


class NightsChart(NamedTuple):
    """A chart of a quantity over the nights.

    Attributes:
        title: title of the chart.
        points: the points, oldest first.
        write: formats a value.
        note: text below the chart, or empty.
        of_time: whether the values are seconds.
    """

    title: str
    points: Sequence[Point]
    write: Callable[[float], str]
    note: str = ""
    of_time: bool = False


def ticks(charts: Iterable[NightsChart]) -> list[float]:
    """Return two to five round numbers as ticks that enclose all values of charts with at least one point."""
    drawn = [*charts]
    points = [point for chart in drawn for point in chart.points]
    ends = [end for point in points for end in (point.low, point.high, point.floor) if end is not None]
    low, high = min(ends), max(ends)
    rough = ((high - low) or abs(high) or 1.0) / 3
    unit = 10 ** math.floor(math.log10(rough))
    steps = [factor * unit for factor in (1, 2, 2.5, 5, 10)]
    if all(chart.of_time for chart in drawn) and _TIMES[0] / 1.5 <= rough <= _TIMES[-1]:
        steps = [*_TIMES]
    step = next(step for step in steps if step >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def line(chart: NightsChart, axis: Sequence[float]) -> Svg:
    """Draw a quantity over the nights as a line, and the intervals as a band.

    Args:
        chart: a chart with at least one point.
        axis: the ticks; all values must lie between the first and the last tick.
    """
    points, write = chart.points, chart.write
    drawn = _thinned(points)
    values = [point.value for point in points]
    across = _scale(drawn[0].time, drawn[-1].time, _LEFT, _WIDTH - _RIGHT)
    upward = _scale(axis[0], axis[-1], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        Markup('<path d="M{:g},{:.1f}H{:g}" stroke="var(--rule)"/><text x="{:g}" y="{:.1f}">{}</text>').format(
            _LEFT, upward(tick), _WIDTH - _RIGHT, _LEFT - 6, upward(tick) + 3, text
        )
        for tick, text in zip(axis, _written(chart, axis), strict=True)
    ]
    ends = [(across(drawn[0].time), "start", drawn[0].time), (across(drawn[-1].time), "end", drawn[-1].time)]
    # Show times of day if all points are of one day.
    same_day = figures.date(drawn[0].time) == figures.date(drawn[-1].time)
    parts += [
        Markup('<text x="{:.1f}" y="{:g}" style="text-anchor: {}">{}</text>').format(
            x, _HEIGHT - 5, anchor, f"{figures.short_moment(time)[-5:]} UTC" if same_day else figures.date(time)
        )
        for x, anchor, time in (ends if len(drawn) > 1 else ends[1:])
    ]
    band = [(point.time, point.high) for point in drawn] + [(point.time, point.low) for point in reversed(drawn)]
    parts.append(Markup('<polygon points="{}"/>').format(_places(band, across, upward)))
    course = _places([(point.time, point.value) for point in drawn], across, upward)
    parts.append(Markup('<polyline points="{}"/>').format(course))
    parts += _promotions(points, across, upward)
    x, y = course.split(" ")[-1].split(",")
    parts.append(Markup('<circle cx="{}" cy="{}" r="3"/>').format(x, y))
    summary = {"first": values[0], "last": values[-1], "lowest": min(values), "highest": max(values)}
    alt = (
        f"{chart.title} over {len(points)} nights, from {figures.date(points[0].time)} to "
        f"{figures.date(points[-1].time)}: {', '.join(f'{which} {write(value)}' for which, value in summary.items())}"
        f"{_below(points)}."
    )
    return Svg(alt, _WIDTH, _HEIGHT, Markup().join(parts), "chart line")


def _promotions(points: Sequence[Point], across: Callable, upward: Callable) -> Iterator[Markup]:
    """Yield the floor as a dashed line, promoted models as rings, and models below the floor as crosses."""
    floors = [(point.time, point.floor) for point in points if point.floor is not None]
    if floors:
        yield Markup('<polyline class="floor" points="{}"/>').format(_places(_thinned(floors), across, upward))
    for point in points:
        x, y = across(point.time), upward(point.value)
        if point.below:
            yield Markup('<path class="below" d="M{:.1f},{:.1f}l8,8m0,-8l-8,8"/>').format(x - 4, y - 4)
        elif point.promoted:
            yield Markup('<circle class="promoted" cx="{:.1f}" cy="{:.1f}" r="3.5"/>').format(x, y)


def _below(points: Sequence[Point]) -> str:
    count = sum(point.below for point in points)
    return f"; {count} refused for this figure" if count else ""


def _thinned(points: Sequence[T]) -> Sequence[T]:
    """Return at most about 500 points: every n-th point and the last point."""
    every = -(-len(points) // MOST_POINTS)
    return points if every <= 1 else [*points[:-1:every], points[-1]]


def _written(chart: NightsChart, axis: Sequence[float]) -> list[str]:
    """Format the ticks without common trailing zeros, and without zero seconds and minutes."""
    texts = [chart.write(tick) for tick in axis]
    if chart.of_time:
        ended = [text.removesuffix(" 0 s").removesuffix(" 0 min") for text in texts]
        return [text if tick else "0" for tick, text in zip(axis, ended, strict=True)]
    whole = [text.replace(".0 %", " %") for text in texts]
    return whole if all("." not in text for text in whole) else texts


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return the linear map from values in low … high to coordinates in start … end."""
    if high == low:
        return lambda _: (start + end) / 2
    return lambda value: start + (end - start) * (value - low) / (high - low)


def _places(points: Sequence[tuple[float, float]], across: Callable, upward: Callable) -> str:
    return " ".join(f"{across(x):.1f},{upward(y):.1f}" for x, y in points)


def spark(name: str, values: Sequence[float]) -> Markup:
    """Draw a sparkline of a metric over recent nights; the last value is this night's.

    Args:
        name: name of the metric.
        values: at least two values, oldest first.
    """
    across = _scale(0, len(values) - 1, _MARGIN, _SPARK_WIDTH - _MARGIN)
    upward = _scale(min(values), max(values), _SPARK_HEIGHT - _MARGIN, _MARGIN)
    course = _places([*enumerate(values)], across, upward)
    told = ", ".join(measures.value_text(name, value) for value in values)
    return Markup(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 0 {:g} {:g}">'
        '<polyline points="{}"/><circle cx="{}" cy="{}" r="2.2"/></svg>'
    ).format(
        f"{measure_named(name).label} of the last runs: {told}.",
        _SPARK_WIDTH,
        _SPARK_HEIGHT,
        course,
        *course.split(" ")[-1].split(","),
    )
