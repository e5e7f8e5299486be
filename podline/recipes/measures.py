"""Defines the measures of evaluations, including those of installed packages, and formats their values.

A package adds a measure by the entry point ``podline.measures``; docs/how-to/parts.md has an example. If a measure's
package is missing, the value is shown with the measure's name as label.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from podline.base.figures import percent
from podline.documents.manifest import USUAL_KIND
from podline.documents.metric import Metric
from podline.recipes.parts import Loaded, Registry

ENTRY_POINTS = "podline.measures"


@dataclass(frozen=True)
class Measure:
    """A measure of an evaluation, such as accuracy.

    Attributes:
        name: key in ``evaluation.json`` and in the ledger.
        label: name in reports.
        in_percent: whether the value is a share, written as 82.3 %; other values have three decimals.
        higher_is_better: if False, lower is better.
        compute: returns a number, or a value per example (n,), of which the mean is the measure. The argument is
            :class:`podline.kinds.classification.guesses.Guesses` for a classifier,
            :class:`podline.kinds.labels.scores.Scores` for several labels, and
            :class:`podline.kinds.by_example.answered.Answered` for a kind of an installed package. None if the kind
            computes the measure itself.
        least_classes: least number of classes; data sets with fewer classes do not have the measure.
        has_interval: whether a measure that is one number gets an interval, by the bootstrap over examples. A measure
            with a value per example always gets an interval of its mean.
        kind: the kind of task whose models have the measure.
        in_units: whether the value has a unit, such as years, and may exceed 1; the assumed spread between seeds is
            then relative to the value.
    """

    name: str
    label: str
    in_percent: bool = False
    higher_is_better: bool = True
    compute: Callable[[Any], Any] | None = None
    least_classes: int = 2
    has_interval: bool = True
    kind: str = USUAL_KIND
    in_units: bool = False

    def better(self, value: float, than: float) -> bool:
        """Return whether ``value`` is better than ``than``."""
        return value > than if self.higher_is_better else value < than

    def spread(self, assumed: float, value: float) -> float:
        """Return the assumed standard deviation of the measure between seeds.

        Args:
            assumed: the assumption for a share of one half; see
                :class:`podline.recipes.promotion_settings.PromotionSettings`.
            value: the measure's value.
        """
        return 2 * assumed * abs(value) if self.in_units else assumed


_of_labels = partial(Measure, kind="labels", least_classes=1)
# In the order of display.
SHIPPED = (
    Measure("top1", "accuracy", in_percent=True, compute=lambda guesses: guesses.right),
    Measure("top5", "top-5 accuracy", in_percent=True, compute=lambda guesses: guesses.ranks < 5, least_classes=6),
    Measure("loss", "loss", higher_is_better=False, compute=lambda guesses: guesses.losses),
    Measure(
        "calibration_error",
        "calibration error",
        in_percent=True,
        higher_is_better=False,
        compute=lambda guesses: guesses.calibration_error(),
        has_interval=False,  # bootstrap values lie above the value itself
    ),
    _of_labels("map", "mAP", compute=lambda scores: scores.mean_precision()),
    _of_labels("f1_micro", "F1 over all labels", compute=lambda scores: scores.f1_micro()),
    _of_labels("f1_macro", "mean F1 of the labels", compute=lambda scores: scores.f1_macro()),
    _of_labels("exact", "all labels right", in_percent=True, compute=lambda scores: scores.right),
    Measure("ap", "AP"),
    Measure("ap50", "AP50"),
    Measure("ap75", "AP75"),
    Measure("pck", "PCK@0.2"),
    Measure("ap_medium", "AP, medium"),
    Measure("ap_large", "AP, large"),
    Measure("ar", "AR"),
    Measure("ar50", "AR50"),
    Measure("ar75", "AR75"),
    Measure("ar_medium", "AR, medium"),
    Measure("ar_large", "AR, large"),
)


@functools.cache
def loaded() -> Loaded[Measure]:
    """Return Podline's and installed measures, and the problems of installed measures that cannot be loaded."""
    shipped = {measure.name: measure for measure in SHIPPED}
    found, problems = Registry("measure", ENTRY_POINTS, shipped, Measure).loaded()
    empty = [name for name, measure in found.items() if measure.compute is None and name not in shipped]
    without = [f"measure {name}: got compute=None, expected a function" for name in empty]
    return Loaded(found, (*problems, *without))


def known() -> dict[str, Measure]:
    """Return all loadable measures by name."""
    return loaded().objects


def of_kind(kind: str) -> list[Measure]:
    """Return the loadable measures for models of a kind."""
    return [measure for measure in known().values() if measure.compute is not None and measure.kind == kind]


def measure_named(name: str) -> Measure:
    """Return the measure with this name; the label of an unknown measure is its name."""
    return known().get(name) or Measure(name, name.replace("_", " "))


def shown(names: Iterable[str]) -> list[Measure]:
    """Return the measures with these names in the order of display; unknown measures come last."""
    given = list(names)
    order = [name for name in known() if name in given]
    return [measure_named(name) for name in (*order, *(name for name in given if name not in order))]


def metric_text(name: str, metric: Metric) -> str:
    """Format a metric with its interval, if there is one: shares in percent, other values with three decimals."""
    text = value_text(name, metric.value)
    return f"{text} {interval_text(name, metric)}" if metric.low != metric.high else text


def interval_text(name: str, metric: Metric) -> str:
    """Format the interval of a metric, without units: ``[79.9, 84.5]``."""
    return f"[{_number(name, metric.low)}, {_number(name, metric.high)}]"


def with_name(name: str, text: str) -> str:
    """Add the measure's label to a formatted value unless it is a share: ``AP 0.815``, but ``82.3 %``."""
    measure = measure_named(name)
    return text if measure.in_percent else f"{measure.label} {text}"


def value_text(name: str, value: float) -> str:
    """Format a metric's value: a share in percent, other values with three decimals."""
    return percent(value) if measure_named(name).in_percent else f"{value:.3f}"


def change_text(name: str, value: float) -> str:
    """Format the change of a metric with its sign: ``+1.4 points`` for a share, else ``−0.012``."""
    return f"{change_bound(name, value)} points" if measure_named(name).in_percent else change_bound(name, value)


def change_bound(name: str, value: float) -> str:
    """Format a change of a metric, or a limit of the change's interval, without a unit."""
    return _number(name, value, "+").replace("-", "\N{MINUS SIGN}")


def _number(name: str, value: float, sign: str = "-") -> str:
    return f"{100 * value:{sign}.1f}" if measure_named(name).in_percent else f"{value:{sign}.3f}"
