"""Draws the report's charts as SVG text; see :mod:`podline.base.drawing.drawing`."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from podline.base import figures
from podline.base.drawing.drawing import ACCENT, INK, MUTED, SECOND, chart
from podline.base.drawing.svg import Svg
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.metric import Metric
from podline.documents.metrics_log import EvaluationLine, StepsLine
from podline.recipes import measures
from podline.recipes.measures import measure_named

DASHED: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (4, 3))}
COLOURS = ("#3b7dd8", "#d9772b", "#3a9d5d", "#b05bc4", "#cf4f6d", "#8a7a3c", "#2f9aa0", "#8b8f94")
"""Colours of several curves in a chart, visible on white and on black."""
# Titles for the measures of a pose network's stages; heatmap stages are dashed.
_STAGE_MEASURES = {
    "loss": "Loss of each stage",
    "magnitude": "Strength of each stage’s outputs, as a share of the target’s",
    "recall": "Share of the target’s strong cells where the output is at least half as strong",
    "island_recall": "Share of joints, and of limbs’ middles, that are found",
    "error": "Mean absolute error of a channel",
    "change": "Change from the previous stage, as a share of the output",
}
_STAGE_COLOURS = (ACCENT, SECOND, *COLOURS[2:])


def verdict(evaluation: AnyEvaluation) -> Svg:
    """Draw the main metric with 95 % intervals, one row each: guessing, and the untrained and trained model.

    A fourth row has the trained model's metric on training examples.
    """
    measure = evaluation.measure
    rows = [
        ("guessing", evaluation.guessing, MUTED),
        ("untrained", evaluation.untrained.metrics[measure], MUTED),
        ("trained", evaluation.trained.metrics[measure], ACCENT),
        ("on seen examples", evaluation.seen.metrics[measure], SECOND),
    ]
    name, most, least = measure_named(measure).label, 1.0, min(0.0, *(metric.low for _, metric, _ in rows))
    if measure_named(measure).in_units:
        most = max(metric.high for _, metric, _ in rows)
    alt = "; ".join(f"{row}: {measures.metric_text(measure, metric)}" for row, metric, _ in rows)
    with chart("verdict", f"{name[0].upper()}{name[1:]} with 95 % intervals. {alt}.", height=1.45) as drawing:
        (axes,) = drawing.axes()
        for place, (_, metric, colour) in enumerate(rows):
            interval(axes, metric, place, colour)
            left = metric.high > 0.8 * most
            axes.annotate(
                measures.value_text(measure, metric.value),
                (metric.low if left else metric.high, place),
                (-6 if left else 6, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                va="center_baseline",
            )
        axes.set_yticks(range(len(rows)), [row for row, _, _ in rows])
        words_on_the_left(axes)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        if measure_named(measure).in_percent:
            percent_axis(axes, "x")
        axes.set_xlim(1.02 * least - 0.02 * most, 1.02 * most)
    return drawing.svg


def curve(
    title: str,
    figure: str,
    steps: Sequence[StepsLine],
    evaluations: Sequence[EvaluationLine] = (),
    rejected: Set[int] = frozenset(),
) -> Svg:
    """Draw a metric over the training steps, on training batches and on held-out examples.

    Args:
        title: title of the chart.
        figure: name of the metric: a field of the lines, or a key of their ``measures``.
        steps: the lines of training steps.
        evaluations: the lines of evaluations.
        rejected: steps whose state was rejected; the chart marks each by a cross.
    """

    def value(line: StepsLine | EvaluationLine) -> float:
        return line.measures[figure] if figure in line.measures else getattr(line, figure)

    ends = {"in training": steps[-1:], "on the held-out split": evaluations[-1:]}
    last = ", ".join(f"{value(line):.3g} {where}" for where, lines in ends.items() for line in lines)
    with chart(figure, f"{title} over training steps. Last: {last}.") as drawing:
        (axes,) = drawing.axes()
        if steps:
            axes.plot([line.step for line in steps], [value(line) for line in steps], color=ACCENT, label="training")
        _evaluations(axes, evaluations, [value(line) for line in evaluations], rejected)
        axes.set_ylim(bottom=min([0.0, *(value(line) for line in (*steps, *evaluations))]))
        if figure == "accuracy":
            percent_axis(axes, "y")
            axes.set_ylim(top=1.02)
        steps_axis(axes)
    return drawing.svg


def throughput(steps: Sequence[StepsLine]) -> Svg:
    """Draw two charts over the training steps: examples per second, and the share of time spent waiting for input."""
    typical = float(np.median([line.examples_per_second for line in steps])) if steps else 0.0
    alt = f"Examples per second over training steps (median {typical:,.0f}), and the share of time waiting for input."
    with chart("throughput", alt) as drawing:
        rates, waiting = drawing.axes(2, heights=(2, 1))
        at = [line.step for line in steps]
        rates.plot(at, [line.examples_per_second for line in steps], color=ACCENT)
        rates.set_ylim(bottom=0)
        rates.yaxis.set_major_formatter(THOUSANDS)
        rates.set_ylabel("examples/s")
        waiting.plot(at, [line.waiting for line in steps], color=SECOND)
        waiting.set_ylim(0, max(0.1, 1.1 * max((line.waiting for line in steps), default=0)))
        percent_axis(waiting, "y", most=3)
        waiting.set_ylabel("waiting")
        steps_axis(waiting)
    return drawing.svg


def stage_measures(steps: Sequence[StepsLine]) -> dict[str, Svg]:
    """Draw the logged measures of a pose network's stages; return title → chart, empty for other kinds of task."""
    logged = {name.partition("/")[2] for line in steps for name in line.measures}
    return {title: _stage_measure(steps, name) for name, title in _STAGE_MEASURES.items() if name in logged}


def _stage_measure(steps: Sequence[StepsLine], measure: str) -> Svg:
    names = sorted({name for line in steps for name in line.measures if name.partition("/")[2] == measure})
    last = {name: next(line.measures[name] for line in reversed(steps) if name in line.measures) for name in names}
    ends = ", ".join(f"{name.partition('/')[0].replace('_', ' ')} {value:.3g}" for name, value in last.items())
    with chart(f"stage-{measure}", f"{_STAGE_MEASURES[measure]}, over training steps; at the end: {ends}.") as drawing:
        (axes,) = drawing.axes()
        for place, name in enumerate(names):
            stage = name.partition("/")[0]
            at = [line for line in steps if name in line.measures]
            axes.plot(
                [line.step for line in at],
                [line.measures[name] for line in at],
                color=_STAGE_COLOURS[place % len(_STAGE_COLOURS)],
                linestyle="--" if stage.endswith("heatmap") else "-",
                label=stage.replace("_", " "),
            )
        axes.set_ylim(bottom=0)
        steps_axis(axes)
        axes.legend(loc="best")
    return drawing.svg


THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")
_PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.0f} %")


def steps_axis(axes: Axes) -> None:
    """Format the x axis for training steps."""
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(THOUSANDS)
    axes.set_xlabel("step")
    axes.set_xlim(left=0)


def words_on_the_left(axes: Axes) -> None:
    """Format the y axis for labelled rows: without line, ticks and grid."""
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def percent_axis(axes: Axes, which: str, most: int = 6) -> None:
    """Format an axis, ``x`` or ``y``, as percentages with at most ``most`` ticks."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(_PERCENT)


def _evaluations(axes: Axes, lines: Sequence[EvaluationLine], values: Sequence[float], rejected: Set[int]) -> None:
    """Draw the curve of the held-out split, with crosses at rejected steps, and a legend."""
    if lines:
        marker = "o" if len(lines) <= 40 else None
        at = [line.step for line in lines]
        axes.plot(at, values, color=SECOND, marker=marker, markersize=3.5, label=lines[-1].split)
        crossed = [(line.step, value) for line, value in zip(lines, values, strict=True) if line.step in rejected]
        if crossed:
            axes.scatter(*zip(*crossed, strict=True), s=60, color=SECOND, marker="x", zorder=3, label="rejected")
        axes.legend(loc="best")


def interval(axes: Axes, metric: Metric, place: float, colour: str, *, upright: bool = False) -> None:
    """Draw a metric as a dot, and its interval as a bar.

    Args:
        axes: the axes to draw on.
        metric: the value and its interval.
        place: coordinate on the axis that does not show the metric's value.
        colour: colour of dot and bar.
        upright: whether the y axis, not the x axis, shows the value.
    """
    bar, dot = ([metric.low, metric.high], [place, place]), ([metric.value], [place])
    if upright:
        bar, dot = bar[::-1], dot[::-1]
    axes.plot(*bar, color=colour, linewidth=2.2, alpha=0.55)
    axes.plot(*dot, color=colour, marker="o", markersize=5.5)


def times(name: str, what: str, seconds: Sequence[tuple[str, float]]) -> Svg:
    """Draw durations as bars; ``what`` is the chart's title."""
    alt = f"{what}: " + ", ".join(f"{stage} {figures.duration(took)}" for stage, took in seconds) + "."
    with chart(name, alt, height=0.4 + 0.27 * len(seconds)) as drawing:
        (axes,) = drawing.axes()
        places = range(len(seconds))
        bars = axes.barh(places, [took for _, took in seconds], 0.55, color=ACCENT, linewidth=0)
        axes.bar_label(bars, [figures.duration(took) for _, took in seconds], padding=4, color=MUTED)
        axes.set_yticks(places, [stage for stage, _ in seconds])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_xticks([])
        axes.margins(x=0.18)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    return drawing.svg


def nights(points: Sequence[tuple[str, Metric]], measure: str, reference: Metric | None) -> Svg:
    """Draw the main metric with its interval over recent nights; a line marks the reference's value.

    Args:
        points: label and main metric of each night, oldest first; the last is the night of the report.
        measure: name of the main metric.
        reference: the main metric of the reference for promotion; None for no line.
    """
    labels, metrics = [label for label, _ in points], [metric for _, metric in points]
    told = "; ".join(f"{label}: {measures.metric_text(measure, metric)}" for label, metric in points)
    line = f" The reference has {measures.value_text(measure, reference.value)}." if reference else ""
    name = measure_named(measure).label
    about = f"{name[0].upper()}{name[1:]} of the last {len(points)} runs with the same settings"
    alt = f"{about}, with 95 % intervals. {told}.{line}"
    with chart("nights", alt, height=2.05) as drawing:
        (axes,) = drawing.axes()
        if reference:
            axes.axhline(reference.value, color=SECOND, **DASHED)
            axes.annotate(
                "reference",
                (1, reference.value),
                (4, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center_baseline",
                color=SECOND,
            )
        axes.plot(range(len(points)), [metric.value for metric in metrics], color=MUTED, linewidth=1, alpha=0.5)
        for place, metric in enumerate(metrics):
            interval(axes, metric, place, ACCENT if place == len(points) - 1 else MUTED, upright=True)
        # Two lines, because dates beside each other leave no space.
        axes.set_xticks(range(len(points)), [label.replace(" ", "\n", 1) for label in labels])
        axes.tick_params(axis="x", length=0)
        axes.get_xticklabels()[-1].set_color(INK)
        axes.margins(x=0.08)
        axes.grid(visible=False, axis="x")
        if measure_named(measure).in_percent:
            percent_axis(axes, "y", most=5)
        else:
            axes.yaxis.set_major_locator(MaxNLocator(4))
    return drawing.svg
