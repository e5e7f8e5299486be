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

# A test split is small if chance can raise the accuracy of guessing by more than this share of its distance to 1.
_SMALL = 0.5
_MOST_TESTED = 0.5  # largest test share that the message suggests


def doubt(names: Sequence[str], test: Sequence[int], every: Sequence[int], *, is_hashed: bool) -> Doubt | None:
    """Return why the test split cannot, or can hardly, show that a model is better than guessing; None if it can.

    See :meth:`podline.recipes.targets.Targets.doubt`.
    """
    guessing, total, most = guessing_interval(test), sum(test), max(test)
    certain = guessing.high >= 1
    if max(every) == sum(every) or (not certain and _leaves_room(guessing, _SMALL)):
        return None
    least = examples_needed(every if most == total else test, 1 if certain else _SMALL, total + 1)
    remedy = "give more test images"
    share = math.ceil(20 * (least + math.sqrt(least)) / sum(every)) / 20  # some more, since the split is random
    if is_hashed and share <= _MOST_TESTED:
        remedy += f", or, if the source has no splits of its own, --set conversion.test_share={share:g}"
    high, named = figures.percent(guessing.high), shortened(names[test.index(most)])
    says = (
        f"always predicting {named}, the class of {most:,} of {plural(total, 'image')}, may be right for up to {high}"
    )
    if certain:
        words = f"can prove nothing: {says}, so even {total:,} of {total:,} correct answers are no better than guessing"
    else:
        words = f"is small: {says} by chance, which a model must exceed"
    return Doubt(certain, f"the test split {words}; {least:,} test images would be enough: {remedy}")


def examples_needed(class_counts: Sequence[int], room: float, at_least: int) -> int:
    """Return how many test examples are enough for guessing's 95 % interval to leave room for a better model.

    Guessing always predicts the most frequent class; the fewer the examples, the wider the interval of its accuracy.

    Args:
        class_counts: number of examples of each class, in the proportions of the data; at least two are not 0.
        room: the interval's upper end may cover this share, 0…1, of the distance from guessing's accuracy to 1; with 1,
            only a model that is always right is better than guessing.
        at_least: the least number to return.
    """
    rate = max(class_counts) / sum(class_counts)
    number = max(at_least, math.floor(Z**2 * rate / (1 - rate) / room**2))
    while not _leaves_room(_guessing(rate, number), room):
        number += 1
    return number


def _guessing(rate: float, examples: int) -> Metric:
    """Return guessing's accuracy and interval if the most frequent class has the share ``rate`` of the examples."""
    most = math.ceil(rate * examples)
    return guessing_interval([most] * (examples // most) + [examples % most])


def _leaves_room(guessing: Metric, room: float) -> bool:
    return guessing.high < 1 and guessing.high - guessing.value <= room * (1 - guessing.value)
