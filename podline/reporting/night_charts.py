"""Charts of a measure over the last nights: with intervals, or as a sparkline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from podline import figures
from podline.documents.metric import Metric
from podline.drawing.drawing import ACCENT, INK, MUTED, SECOND, chart
from podline.measures import measure_named
from podline.reporting.charts import percent_axis

_WIDTH, _HEIGHT, _MARGIN = 72.0, 18.0, 3.0


class Night(NamedTuple):
    """A night: what it is called in the chart, and its figure."""

    label: str
    metric: Metric


def nights(earlier: Sequence[Night], this: Night, measure: str, champion: Metric | None) -> str:
    """The metric that counts, with its interval, of the nights before and of this one; a line is the champion's.

    Args:
        earlier: the nights before, the oldest first.
        this: the night that the report is about.
        measure: which metric it is.
        champion: its figure.
    """
    points = [*earlier, this]
    told = "; ".join(f"{night.label}: {figures.metric_text(measure, night.metric)}" for night in points)
    crown = f" The champion has {figures.value_text(measure, champion.value)}." if champion else ""
    name = measure_named(measure).label
    about = f"{name[0].upper()}{name[1:]} of the last {len(points)} runs with the same settings"
    alt = f"{about}, with 95 % intervals. {told}.{crown}"
    with chart("nights", alt, height=2.05) as drawing:
        (axes,) = drawing.axes()
        if champion:
            axes.axhline(champion.value, color=SECOND, linewidth=0.9, linestyle=(0, (4, 3)))
            axes.annotate(
                "champion",
                (1, champion.value),
                (4, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center_baseline",
                color=SECOND,
            )
        axes.plot(range(len(points)), [night.metric.value for night in points], color=MUTED, linewidth=1, alpha=0.5)
        for place, night in enumerate(points):
            colour = ACCENT if place == len(points) - 1 else MUTED
            axes.plot([place, place], [night.metric.low, night.metric.high], color=colour, linewidth=2.2, alpha=0.55)
            axes.plot([place], [night.metric.value], color=colour, marker="o", markersize=5.5)
        # In two lines: dates beside each other leave no room.
        axes.set_xticks(range(len(points)), [night.label.replace(" ", "\n", 1) for night in points])
        axes.tick_params(axis="x", length=0)
        axes.get_xticklabels()[-1].set_color(INK)
        axes.margins(x=0.08)
        axes.grid(visible=False, axis="x")
        if measure_named(measure).in_percent:
            percent_axis(axes, "y", most=5)
        else:
            axes.yaxis.set_major_locator(MaxNLocator(4))
    return drawing.svg


def spark(name: str, values: Sequence[float]) -> Markup:
    """A metric of the nights before and of this one, the last point, as a line without axes.

    Args:
        name: which metric it is.
        values: the oldest first; at least two.
    """
    low, high = min(values), max(values)
    step = (_WIDTH - 2 * _MARGIN) / (len(values) - 1)
    places = [
        (_MARGIN + place * step, _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * ((value - low) / (high - low or 1)))
        for place, value in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    told = ", ".join(figures.value_text(name, value) for value in values)
    return Markup(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 0 {:g} {:g}">'
        '<polyline points="{}"/><circle cx="{:.1f}" cy="{:.1f}" r="2.2"/></svg>'
    ).format(f"{measure_named(name).label} of the last runs: {told}.", _WIDTH, _HEIGHT, line, *places[-1])
