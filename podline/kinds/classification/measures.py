"""Figures of a classifier by its measures, see :mod:`podline.measures`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from podline.arrays import Array
from podline.documents.metric import Metric
from podline.errors import SettingsError, one_line
from podline.intervals import mean_interval, wilson_interval
from podline.kinds.classification.guesses import Guesses
from podline.measures import Measure, of_classifiers

_RESAMPLES = 1_000


def figures_of(guesses: Guesses, classes: int) -> dict[str, Metric]:
    """Return every measure of a classifier with its 95 % interval.

    A share has Wilson's interval, any other mean the normal one, a number the bootstrap's over examples.

    Raises:
        SettingsError: a measure raises, or gives neither a finite number nor finite values.
    """
    measures = [measure for measure in of_classifiers() if classes >= measure.least_classes]
    return {measure.name: _figure(measure, guesses) for measure in measures}


def value_of(measure: Measure, guesses: Guesses) -> float:
    """Return a measure's figure without its interval.

    Raises:
        SettingsError: see :func:`figures_of`.
    """
    return float(_computed(measure, guesses).mean())


def _figure(measure: Measure, guesses: Guesses) -> Metric:
    found = _computed(measure, guesses)
    if found.ndim:
        share = found.dtype == bool
        return wilson_interval(int(found.sum()), len(found)) if share else mean_interval(found.tolist())
    value = float(found)
    if not measure.has_interval:
        return Metric(value=value, low=value, high=value)
    low, high = np.quantile([_computed(measure, guesses.at(rows)) for rows in _drawn(guesses)], (0.025, 0.975))
    return Metric(value=value, low=min(float(low), value), high=max(float(high), value))


def _computed(measure: Measure, guesses: Guesses) -> Array:
    """Return a measure's number, of shape (), or its values, of shape (n,)."""
    compute, examples = measure.compute, len(guesses.labels)
    if compute is None:
        raise SettingsError(f"the measure {measure.name} is not one of classifiers")
    try:
        found = np.asarray(compute(guesses))
        finite = bool(np.isfinite(found).all())
    except Exception as error:
        raise SettingsError(f"the measure {measure.name}: {type(error).__name__}: {one_line(error)}") from error
    if found.shape not in ((), (examples,)) or not finite:
        got = f"{found}" if found.shape == () else f"an array of shape {found.shape}"
        raise SettingsError(
            f"the measure {measure.name} gives {got}, expected a finite number, or one for each of {examples} examples"
        )
    return found


def _drawn(guesses: Guesses) -> Iterator[npt.NDArray[np.int64]]:
    """Yield samples of the examples' places, with replacement; the same ones each time."""
    random, examples = np.random.default_rng(0), len(guesses.labels)
    for _ in range(_RESAMPLES):
        yield random.integers(0, examples, examples)
