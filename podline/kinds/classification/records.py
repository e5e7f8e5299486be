"""The target of an image with one class: the class number, written as text by the class name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from podline.base import figures
from podline.base.arrays import Array, Arrays
from podline.base.plurals import plural
from podline.data.images.columns import text_of
from podline.data.records import LABEL, label_feature
from podline.data.shown import shortened
from podline.documents.feature import Feature
from podline.documents.intervals import Z, guessing_interval
from podline.documents.manifest import Manifest
from podline.documents.metric import Metric
from podline.recipes.targets import Doubt, TextTargets

# A test split is small if chance can raise the accuracy of guessing by more than this share of its distance to 1.
_SMALL = 0.5
_MOST_TESTED = 0.5  # largest test share that the message suggests


class ClassTargets(TextTargets):
    """One class per image: the field ``label``."""

    least_classes = 2

    def text(self, value: Any, class_names: Sequence[str] = ()) -> str:
        """Return the class name for a label of a source, a name or a number; see :meth:`TextTargets.text`."""
        if isinstance(value, np.generic):
            value = cast("Any", value).item()
        if class_names and not isinstance(value, (str, bytes)):
            label = _number(value)
            if not 0 <= label < len(class_names):
                raise ValueError(f"has the label {label}, expected 0 to {len(class_names) - 1}")
            return class_names[label]
        text = text_of(value)
        if text is None or (class_names and text not in class_names):
            known = f"one of {plural(len(class_names), 'class', 'classes')}" if class_names else "one with a name"
            raise ValueError(f"is of the class {shortened(text)}, expected {known}")
        return text

    def class_names(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Sort the names: by value if all are numbers, else alphabetically."""
        names = set(texts)
        if all(name.isascii() and name.isdecimal() for name in names):
            return tuple(sorted(names, key=lambda name: (int(name), name)))
        return tuple(sorted(names))

    def fields(self, class_names: Sequence[str]) -> tuple[Feature, ...]:
        """Return the record field of the label."""
        return (label_feature(LABEL, class_names),)

    def arrays(self, texts: Sequence[str], class_names: Sequence[str]) -> dict[str, Array]:
        """Return the class numbers, (n,), in the smallest unsigned type."""
        numbers = {name: number for number, name in enumerate(class_names)}
        dtype = np.min_scalar_type(len(class_names) - 1)
        return {LABEL: np.fromiter((numbers[text] for text in texts), dtype, len(texts))}

    def words(self, records: Arrays, class_names: Sequence[str]) -> list[str]:
        """Return the class name of each record."""
        labels: list[int] = records[LABEL].tolist()
        return [class_names[label] for label in labels]

    def census(self, records: Arrays, classes: int) -> npt.NDArray[np.int64]:
        """Count the records of each class; see :meth:`Targets.census`."""
        return np.bincount(records[LABEL], minlength=classes)

    def doubt(
        self, names: Sequence[str], test: Sequence[int], every: Sequence[int], *, is_hashed: bool
    ) -> Doubt | None:
        """Return why the test split cannot or can hardly show that a model is better than guessing; None if it can."""
        guessing, total, most = guessing_interval(test), sum(test), max(test)
        certain = guessing.high >= 1
        if max(every) == sum(every) or (not certain and _leaves_room(guessing, _SMALL)):
            return None
        least = _examples_needed(every if most == total else test, 1 if certain else _SMALL, total + 1)
        remedy = "give more test images"
        share = math.ceil(20 * (least + math.sqrt(least)) / sum(every)) / 20  # some more, since the split is random
        if is_hashed and share <= _MOST_TESTED:
            remedy += f", or, if the source has no splits of its own, --set conversion.test_share={share:g}"
        high, named = figures.percent(guessing.high), shortened(names[test.index(most)])
        of = f"{most:,} of {plural(total, 'image')}"
        says = f"always predicting {named}, the class of {of}, may be right for up to {high}"
        if certain:
            words = (
                f"can prove nothing: {says}, so even {total:,} of {total:,} correct answers are no better than guessing"
            )
        else:
            words = f"is small: {says} by chance, which a model must exceed"
        return Doubt(certain, f"the test split {words}; {least:,} test images would be enough: {remedy}")

    def check(self, records: Arrays, manifest: Manifest) -> tuple[int, str] | None:
        """Return the first record with an invalid label, and the problem; see :meth:`Targets.check`."""
        labels, classes = records[LABEL], len(manifest.class_names)
        wrong = np.flatnonzero((labels < 0) | (labels >= classes))
        return (int(wrong[0]), f"has the label {labels[wrong[0]]}, expected 0 to {classes - 1}") if wrong.size else None


def _number(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value:
        raise ValueError(f"has the label {shortened(value)}, expected a class number")
    return number


def _examples_needed(class_counts: Sequence[int], room: float, at_least: int) -> int:
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
