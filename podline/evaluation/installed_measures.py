"""Figures of measures that installed packages add, see :mod:`podline.measures`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from podline.documents.metric import Metric
from podline.errors import SettingsError, one_line
from podline.measures import Measure, installed

Labels = npt.NDArray[np.int64]
_RESAMPLES = 1_000


def figures_of(labels: Labels, predictions: Labels, classes: int) -> dict[str, Metric]:
    """Every installed measure of a classifier, with the bootstrap's 95 % interval over examples.

    Args:
        labels: the true classes, shape (n,), at least one.
        predictions: the classes that the model names, shape (n,).
        classes: how many there are.

    Raises:
        SettingsError: a measure raises, or gives no finite number.
    """
    return {measure.name: _within(measure, labels, predictions, classes) for measure in installed()}


def value_of(measure: Measure, labels: Labels, predictions: Labels, classes: int) -> float:
    """A measure's value.

    Raises:
        SettingsError: it raises, or gives no finite number.
    """
    compute: Callable[[Labels, Labels, int], float] | None = measure.of_classes
    if compute is None:
        raise SettingsError(f"the measure {measure.name} is Podline's own; an installed one has of_classes")
    try:
        value = float(compute(labels, predictions, classes))
    except Exception as error:
        raise SettingsError(f"the measure {measure.name}: {type(error).__name__}: {one_line(error)}") from error
    if not np.isfinite(value):
        raise SettingsError(f"the measure {measure.name} gives {value} for {len(labels)} examples of {classes} classes")
    return value


def _within(measure: Measure, labels: Labels, predictions: Labels, classes: int) -> Metric:
    values = [value_of(measure, labels[drawn], predictions[drawn], classes) for drawn in _drawn(len(labels))]
    low, high = np.quantile(values, (0.025, 0.975))
    value = value_of(measure, labels, predictions, classes)
    return Metric(value=value, low=min(float(low), value), high=max(float(high), value))


def _drawn(examples: int) -> Iterator[Labels]:
    """Samples of the examples' places, with replacement; the same ones each time."""
    random = np.random.default_rng(0)
    for _ in range(_RESAMPLES):
        yield random.integers(0, examples, examples)
