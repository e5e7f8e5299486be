"""The target of an image with one class: the class number, written as text by the class name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Array, Arrays
from podline.base.plurals import plural
from podline.data.images.columns import text_of
from podline.data.records import LABEL, label_feature
from podline.data.shown import shortened
from podline.documents.feature import Feature
from podline.documents.manifest import Manifest
from podline.kinds.classification.doubts import doubt
from podline.recipes.targets import Doubt, TextTargets


class ClassTargets(TextTargets):
    """One class per image: the field ``label``."""

    least_classes = 2

    def text(self, value: Any, class_names: Sequence[str] = ()) -> str:
        """Return the class name for a label of a source; see :meth:`TextTargets.text`."""
        if class_names and not isinstance(value, str):
            label = _number(value)
            if not 0 <= label < len(class_names):
                raise ValueError(f"has the label {label} vs 0 to {len(class_names) - 1}")
            return class_names[label]
        text = text_of(value)
        if text is None or (class_names and text not in class_names):
            known = f"one of {plural(len(class_names), 'class', 'classes')}" if class_names else "one with a name"
            raise ValueError(f"is of the class {shortened(text)} vs {known}")
        return text

    def class_names(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Sort the names: numbers by value, others alphabetically."""
        names = set(texts)
        if all(name.isascii() and name.isdecimal() for name in names):
            return tuple(sorted(names, key=lambda name: (int(name), name)))
        return tuple(sorted(names))

    def fields(self, class_names: Sequence[str]) -> tuple[Feature, ...]:
        """Return the record field of the label."""
        return (label_feature(LABEL, class_names),)

    def arrays(self, texts: Sequence[str], class_names: Sequence[str]) -> dict[str, Array]:
        """Return the class numbers, (n,), with the smallest integer type."""
        numbers = {name: number for number, name in enumerate(class_names)}
        dtype = np.min_scalar_type(len(class_names) - 1)
        return {LABEL: np.fromiter((numbers[text] for text in texts), dtype, len(texts))}

    def words(self, records: Arrays, class_names: Sequence[str]) -> list[str]:
        """Return the names of the classes."""
        labels: list[int] = records[LABEL].tolist()
        return [class_names[label] for label in labels]

    def census(self, records: Arrays, classes: int) -> npt.NDArray[np.int64]:
        """Count the records of each class; see :meth:`Targets.census`."""
        return np.bincount(records[LABEL], minlength=classes)

    def doubt(
        self, names: Sequence[str], test: Sequence[int], every: Sequence[int], *, is_hashed: bool
    ) -> Doubt | None:
        """Return why the test split cannot show that a model is better than guessing; see :meth:`Targets.doubt`."""
        return doubt(names, test, every, is_hashed=is_hashed)

    def check(self, records: Arrays, manifest: Manifest) -> tuple[int, str] | None:
        """Return the first record with an invalid label, and the problem; see :meth:`Targets.check`."""
        labels, classes = records[LABEL], len(manifest.class_names)
        wrong = np.flatnonzero((labels < 0) | (labels >= classes))
        return (int(wrong[0]), f"has label={labels[wrong[0]]} vs 0 to {classes - 1}") if wrong.size else None


def _number(value: Any) -> int:
    try:
        return int(value)
    except TypeError:
        raise ValueError(f"has the label {value!r}, expected a class number") from None
