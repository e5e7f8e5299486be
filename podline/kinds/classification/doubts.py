"""Checks before a training whether a classifier's test split can show that it is better than guessing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from podline.base import figures
from podline.base.plurals import plural
from podline.data.shown import shortened
from podline.documents.intervals import Z, guessing_interval
from podline.documents.metric import Metric
from podline.recipes.targets import Doubt

# A split is small if chance may lift guessing by more than this share of the way from its rate to 1.
_SMALL = 0.5
_MOST_TESTED = 0.5  # of all images, in the advice


def doubt(names: Sequence[str], test: Sequence[int], every: Sequence[int], *, is_hashed: bool) -> Doubt | None:
    """Return what the test split cannot prove, or None; see :meth:`podline.recipes.targets.Targets.doubt`."""
    guessing, total, most = guessing_interval(test), sum(test), max(test)
    certain = guessing.high >= 1
    if max(every) == sum(every) or (not certain and _leaves_room(guessing, _SMALL)):
        return None
    least = examples_needed(every if most == total else test, 1 if certain else _SMALL, total + 1)
    remedy = "give more test images"
    share = math.ceil(20 * (least + math.sqrt(least)) / sum(every)) / 20  # some more: the hash draws them
    if is_hashed and share <= _MOST_TESTED:
        remedy += f", or, if the source has no splits of its own, --set conversion.test_share={share:g}"
    high, named = figures.percent(guessing.high), shortened(names[test.index(most)])
    says = f"always naming {named}, the class of {most:,} of {plural(total, 'image')}, may be right for up to {high}"
    if certain:
        words = f"can prove nothing: {says}, so even {total:,} of {total:,} right are no better than guessing"
    else:
        words = f"is small: {says} by chance, which a model must exceed"
    return Doubt(certain, f"the test split {words}; {least:,} test images would be enough: {remedy}")


def examples_needed(class_counts: Sequence[int], room: float, at_least: int) -> int:
    """Return the least number of test examples at which chance lifts guessing by at most a share of the way to 1.

    Guessing names the most frequent class. Its interval is wider for fewer examples.

    Args:
        class_counts: numbers of examples of each class, in the wanted proportions; two classes have examples.
        room: the share, 0 … 1; with 1, a model that is always right is better than guessing.
        at_least: the least number to return.
    """
    rate = max(class_counts) / sum(class_counts)
    number = max(at_least, math.floor(Z**2 * rate / (1 - rate) / room**2))
    while not _leaves_room(_guessing(rate, number), room):
        number += 1
    return number


def _guessing(rate: float, examples: int) -> Metric:
    """Return the interval of guessing, if the most frequent class has at least a share of the examples."""
    most = math.ceil(rate * examples)
    return guessing_interval([most] * (examples // most) + [examples % most])


def _leaves_room(guessing: Metric, room: float) -> bool:
    return guessing.high < 1 and guessing.high - guessing.value <= room * (1 - guessing.value)
