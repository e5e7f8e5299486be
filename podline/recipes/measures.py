"""The measures of evaluations: computation, names and text, including those of installed packages.

A package adds a measure by the entry point ``podline.measures``; docs/how-to/parts.md has an example. A figure whose
measure is unknown, because its package is missing, is shown by its name.
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
    """A figure of an evaluation.

    Attributes:
        name: its key in ``evaluation.json`` and in the ledger.
        label: its name for people.
        in_percent: whether it is a share, written as 82.3 %; others have three decimals.
        higher_is_better: if False, lower is better.
        compute: returns a number, or a value per example, whose mean is the figure. Its argument is
            :class:`podline.kinds.classification.guesses.Guesses` for a classifier,
            :class:`podline.kinds.by_example.answered.Answered` for a kind of an installed package. None for figures
            that the kind computes itself.
        least_classes: least number of classes; data sets with fewer do not have it.
        has_interval: whether the bootstrap over examples gives a number's interval; means have a normal one.
        kind: the kind of task whose models have it.
        in_units: whether it has a unit, like years, so that it may exceed 1, and assumptions about it are relative to
            it.
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
        """Return whether a figure is better than another."""
        return value > than if self.higher_is_better else value < than

    def spread(self, assumed: float, value: float) -> float:
        """Return the assumed standard deviation between seeds of a figure.

        Args:
            assumed: assumption for a share of one half; see
                :class:`podline.recipes.promotion_settings.PromotionSettings`.
            value: the figure.
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
        has_interval=False,  # the bootstrap's values lie above it
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
    """Load the measures of installed packages."""
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
    """Return the measure with this name; an unknown one gets its name as label."""
    return known().get(name) or Measure(name, name.replace("_", " "))


def shown(names: Iterable[str]) -> list[Measure]:
    """Return the measures with some names, in the order of display; unknown ones last."""
    given = list(names)
    order = [name for name in known() if name in given]
    return [measure_named(name) for name in (*order, *(name for name in given if name not in order))]


def metric_text(name: str, metric: Metric) -> str:
    """Format a metric with its interval, if known: shares in percent, a loss with three decimals."""
    text = value_text(name, metric.value)
    return f"{text} {interval_text(name, metric)}" if metric.low != metric.high else text


def interval_text(name: str, metric: Metric) -> str:
    """Format the interval of a metric, without units: ``[79.9, 84.5]``."""
    return f"[{bound_text(name, metric.low)}, {bound_text(name, metric.high)}]"


def with_name(name: str, text: str) -> str:
    """Format a metric's figure for use alone; add the name unless it is a share, as ``AP 0.815``."""
    measure = measure_named(name)
    return text if measure.in_percent else f"{measure.label} {text}"


def value_text(name: str, value: float) -> str:
    """Format a metric's value: a share in percent, any other with three decimals."""
    return percent(value) if measure_named(name).in_percent else f"{value:.3f}"


def bound_text(name: str, value: float) -> str:
    """Format an end of a metric's interval like the value, without a unit."""
    return f"{100 * value:.1f}" if measure_named(name).in_percent else f"{value:.3f}"


def change_text(name: str, value: float) -> str:
    """Format the change of a metric with its sign: ``+1.4 points`` for a share, ``−0.012`` for others."""
    return f"{change_bound(name, value)} points" if measure_named(name).in_percent else change_bound(name, value)


def change_bound(name: str, value: float) -> str:
    """Format a change, or an end of its interval, without a unit."""
    text = f"{100 * value:+.1f}" if measure_named(name).in_percent else f"{value:+.3f}"
    return text.replace("-", "\N{MINUS SIGN}")
