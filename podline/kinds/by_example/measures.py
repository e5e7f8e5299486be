"""Computes a model's figures by the measures of its kind; see :mod:`podline.recipes.measures`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from podline.base import entry_points
from podline.base.arrays import Array, Floats
from podline.base.errors import SettingsError
from podline.contract.per_example import PerExample
from podline.documents import intervals
from podline.documents.intervals import ENDS, mean_interval, wilson_interval
from podline.documents.metric import Metric
from podline.kinds.by_example.estimate import Estimate
from podline.recipes.kind_table import facts_named
from podline.recipes.measures import Measure, loaded, of_kind


def figures_of(
    answers: PerExample, kind: str, classes: int | None = None, failed: Callable[[str], object] | None = None
) -> dict[str, Metric]:
    """Return every measure of a kind with its 95 % interval.

    The interval is Wilson's for a share, the normal one for any other mean, the bootstrap's over examples for a single
    number, and :meth:`Estimate.metric`'s for an estimate. A single number without ``has_interval`` gets none.

    Args:
        answers: a model's answers, with the targets.
        kind: name of the kind.
        classes: number of classes; measures that need more classes are left out. None leaves none out.
        failed: called with the reason if a measure is left out because it fails.

    Raises:
        SettingsError: the kind's main measure cannot be loaded, raises, or does not return finite numbers.
    """
    found, main = dict[str, Metric](), facts_named(kind).measure
    for measure in of_kind(kind):
        if classes is None or classes >= measure.least_classes:
            try:
                found[measure.name] = figure_of(measure, answers)
            except SettingsError as error:
                if measure.name == main:
                    raise
                if failed:
                    failed(str(error))
    if main not in found:
        raise SettingsError(
            "; ".join((f"there is no measure {main}, the main measure of the kind {kind}", *loaded().problems))
        )
    return found


def value_of(measure: Measure, answers: PerExample) -> float:
    """Return a measure's figure without its interval.

    Raises:
        SettingsError: see :func:`values_of`.
    """
    found = values_of(measure, answers)
    return found.value if isinstance(found, Estimate) else float(found.mean())


def figure_of(measure: Measure, answers: PerExample) -> Metric:
    """Return a measure's figure with its interval.

    Raises:
        SettingsError: see :func:`values_of`; also if the measure fails for a bootstrap sample.
    """
    found = values_of(measure, answers)
    if isinstance(found, Estimate):
        return found.metric()
    if found.ndim:
        share = found.dtype == bool
        return wilson_interval(int(found.sum()), len(found)) if share else mean_interval(found.tolist())
    value = float(found)
    if not measure.has_interval:
        return Metric(value=value, low=value, high=value)
    drawn = [value_of(measure, answers.at(rows)) for rows in drawn_rows(len(answers.labels))]
    low, high = np.quantile(drawn, ENDS)
    return Metric(value=value, low=min(float(low), value), high=max(float(high), value))


def gains_of(measure: Measure, before: PerExample, after: PerExample) -> Floats:
    """Return how much each example's value of the measure improves, (n,); empty for a measure with a single number."""
    then, now = (values_of(measure, each) for each in (before, after))
    if isinstance(then, Estimate) or isinstance(now, Estimate) or not (then.ndim and now.ndim):
        return np.empty(0)
    gain = now.astype(float) - then.astype(float)
    return gain if measure.higher_is_better else -gain


def values_of(measure: Measure, answers: PerExample) -> Array | Estimate:
    """Compute a measure: one number, shape (), or a value per example, shape (n,), or an estimate.

    Raises:
        SettingsError: the measure has no function, raises, or does not return finite numbers.
    """
    compute, examples = measure.compute, len(answers.labels)
    if compute is None:
        raise SettingsError(f"measure {measure.name} has no function (compute=None); set compute")
    with entry_points.explained(f"measure {measure.name} ({compute.__module__})"):
        computed = compute(answers)
        found = np.asarray(computed.value if isinstance(computed, Estimate) else computed)
        finite = bool(np.isfinite(found).all())
    if found.shape not in ((), (examples,)) or not finite:
        got = f"{found}" if found.shape == () else f"an array of shape {found.shape}"
        raise SettingsError(
            f"measure {measure.name} gives {got}, expected a finite number, or one for each of {examples} examples"
        )
    return computed if isinstance(computed, Estimate) else found


def drawn_rows(examples: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield bootstrap samples of example indices, (examples,) each; every call yields the same samples."""
    random = np.random.default_rng(0)
    for _ in range(intervals.RESAMPLES):
        yield random.integers(0, examples, examples)
