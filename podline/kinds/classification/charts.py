"""Draws charts of a classifier's report as SVG text; see :mod:`podline.base.drawing.drawing`."""

# pyright: standard
from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from podline.base.drawing.drawing import ACCENT, INK, MUTED, PAPER, SECOND, chart
from podline.base.drawing.svg import Svg
from podline.documents.metric import Metric
from podline.kinds.classification.document import CalibrationBin, Evaluation
from podline.report.charts import DASHED, THOUSANDS, interval, percent_axis, words_on_the_left

# Above this number of classes, the matrix is drawn as an image without numbers.
MANY_CLASSES = 20
MATRIX_ROWS = 400
"""Largest number of rows of the confusion matrix in the chart; larger matrices are summed to it."""


def confusion(evaluation: Evaluation) -> Svg:
    """Draw the confusion matrix: one row per label; a stronger colour is a larger share of the row."""
    counts = np.asarray(evaluation.confusion) if evaluation.confusion else _summed(evaluation)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    classes, names, worst = len(counts), evaluation.class_names, "No confusion at all."
    for label, prediction, times in evaluation.confusions[:1]:
        worst = f"Most frequent confusion: {names[label]} predicted as {names[prediction]}, {times} times."
    alt = f"Confusion matrix of {len(names)} classes. {worst}"
    with chart("confusion", alt, height=4.6) as drawing:
        (axes,) = drawing.axes()
        (_cells if classes <= MANY_CLASSES else _pixels)(axes, counts, shares)
        axes.set_xlim(-0.5, classes - 0.5)
        axes.set_ylim(classes - 0.5, -0.5)
        axes.set_aspect("equal")
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        if classes <= MANY_CLASSES:
            axes.set_xticks(range(classes), names, rotation=90)
            axes.set_yticks(range(classes), names)
        elif classes < len(names):  # tick labels are class numbers; a row stands for several classes
            step = len(names) / classes
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(FuncFormatter(lambda row, _: f"{round(row * step):,}"))
        axes.set_xlabel("prediction")
        axes.set_ylabel("label")
    return drawing.svg


def _summed(evaluation: Evaluation) -> np.ndarray:
    """Return the confusion matrix; sum neighbouring classes, to at most :data:`MATRIX_ROWS` rows."""
    rows = min(len(evaluation.class_names), MATRIX_ROWS)
    right = [(label, label, found.correct) for label, found in enumerate(evaluation.per_class)]
    labels, predictions, times = np.array([*right, *evaluation.confused]).T
    counts = np.zeros((rows, rows), np.int64)
    np.add.at(counts, tuple(each * rows // len(evaluation.class_names) for each in (labels, predictions)), times)
    return counts


def per_class(classes: Mapping[str, Metric], overall: float, most: int, what: str) -> Svg:
    """Draw each class's share with its 95 % interval, best first; a dashed line marks the overall share.

    Args:
        classes: the share of each class, by name.
        overall: the share over all classes.
        most: largest number of classes to draw; of more classes, those with the lowest shares are drawn.
        what: description of the share, for the alternative text.
    """
    ranked = sorted(classes.items(), key=lambda each: each[1].value)[:most]
    (lowest, worst), (highest, best) = ranked[0], ranked[-1]
    alt = (
        f"{what} with 95 % intervals, from {highest} ({100 * best.value:.1f} %) down to {lowest} "
        f"({100 * worst.value:.1f} %)."
    )
    with chart("per-class", alt, height=0.75 + 0.26 * len(ranked)) as drawing:
        (axes,) = drawing.axes()
        axes.axvline(overall, color=MUTED, **DASHED)
        for place, (_, metric) in enumerate(ranked):
            interval(axes, metric, place, ACCENT)
        axes.set_yticks(range(len(ranked)), [name for name, _ in ranked])
        words_on_the_left(axes)
        axes.set_ylim(-0.6, len(ranked) - 0.4)
        axes.set_xlim(np.floor(10 * min(metric.low for _, metric in ranked)) / 10 - 0.01, 1.01)
        percent_axis(axes, "x")
    return drawing.svg


def calibration(bins: Sequence[CalibrationBin], error: float) -> Svg:
    """Draw the reliability diagram: accuracy by confidence, and below it a histogram of the confidences."""
    filled = [entry for entry in bins if entry.examples]
    alt = f"Reliability diagram: accuracy against confidence. Expected calibration error {100 * error:.1f} %."
    with chart("calibration", alt, height=3.9) as drawing:
        reliability, histogram = drawing.axes(2, heights=(3, 1))
        reliability.plot([0, 1], [0, 1], color=MUTED, label="perfectly calibrated", **DASHED)
        confidences = [entry.confidence for entry in filled]
        accuracies = [entry.accuracy for entry in filled]
        largest = max((entry.examples for entry in filled), default=1)
        areas = [8 + 72 * entry.examples / largest for entry in filled]
        reliability.vlines(confidences, confidences, accuracies, color=SECOND, linewidth=1.2)
        reliability.scatter(confidences, accuracies, areas, color=ACCENT, linewidth=0, zorder=3, label="this model")
        reliability.set_ylim(-0.03, 1.03)
        percent_axis(reliability, "y")
        reliability.set_ylabel("right")
        reliability.legend(loc="upper left")
        histogram.bar(
            [entry.low for entry in bins],
            [entry.examples for entry in bins],
            [(entry.high - entry.low) * 0.9 for entry in bins],
            align="edge",
            color=MUTED,
            linewidth=0,
        )
        histogram.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        histogram.yaxis.set_major_formatter(THOUSANDS)
        histogram.set_ylabel("examples")
        histogram.set_xlim(0, 1)
        percent_axis(histogram, "x")
        histogram.set_xlabel("probability of the predicted class")
    return drawing.svg


def _cells(axes: Axes, counts: np.ndarray, shares: np.ndarray) -> None:
    """Draw a square with its count per (label, prediction); correct answers and mistakes have different colours."""
    for (label, prediction), share in np.ndenumerate(shares):
        colour = ACCENT if label == prediction else SECOND
        strength = share if label == prediction else min(1.0, 2.5 * share)
        if counts[label, prediction]:
            axes.bar(prediction, 0.94, 0.94, label - 0.47, color=colour, alpha=strength, linewidth=0)
        axes.text(
            prediction,
            label,
            str(counts[label, prediction]),
            ha="center",
            va="center_baseline",
            fontsize=8 if len(counts) <= 12 else 6,
            color=MUTED if not counts[label, prediction] else PAPER if strength > 0.7 else INK,
        )


def _pixels(axes: Axes, _counts: np.ndarray, shares: np.ndarray) -> None:
    """Draw one pixel per (label, prediction); 0 is transparent, for light and dark pages."""
    picture = np.empty((*shares.shape, 4))
    picture[..., :3] = (0.85, 0.47, 0.18)
    picture[np.arange(len(shares)), np.arange(len(shares)), :3] = (0.25, 0.5, 0.8)
    # The square root makes rare confusions visible next to the diagonal.
    picture[..., 3] = np.sqrt(shares)
    axes.imshow(picture, interpolation="none")
