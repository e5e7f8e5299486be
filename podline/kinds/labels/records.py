"""The target of an image with any number of labels: a 0 or 1 per label; as text, a JSON list of sorted names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Array, Arrays
from podline.data.images.settings import MARKS
from podline.data.shown import shortened
from podline.data.sources.class_names import problem_of
from podline.data.texts import literal
from podline.documents.feature import Feature
from podline.documents.manifest import Manifest
from podline.kinds.classification.records import ClassTargets
from podline.recipes.targets import TextTargets

LABELS = "labels"
"""The field: uint8 (labels,), 1 for each label of the image."""

_CLASSES = ClassTargets()


class LabelTargets(TextTargets):
    """The targets of classification with several labels: the field ``labels``, any number per image."""

    least_classes = 1

    def text(self, value: Any, class_names: Sequence[str] = ()) -> str:
        """Return an image's label names as a JSON list; see :meth:`TextTargets.text`.

        Args:
            value: a list of names, empty for none; a text of one name, or of several with a separator, empty for none;
                a list of names as text in JSON or Python; an object of zeros and ones by name; or a number, for one
                label.
            class_names: the names of all labels, if known beforehand; a number is then an index into them.

        Raises:
            ValueError: the value is not a target; the message is a phrase after the image's name.
        """
        names = sorted({_CLASSES.text(each, class_names).strip() for each in _parts(value)})
        for name in names:
            if problem := problem_of(name):
                raise ValueError(f"has the label {shortened(name)}, which {problem}; rename it")
        return json.dumps(names, ensure_ascii=False)

    def class_names(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Sort the names: by value if all are numbers, else alphabetically."""
        return _CLASSES.class_names({name for text in texts for name in json.loads(text)})

    def fields(self, class_names: Sequence[str]) -> tuple[Feature, ...]:
        """Return the record field of the labels."""
        return (Feature(LABELS, "uint8", (len(class_names),)),)

    def arrays(self, texts: Sequence[str], class_names: Sequence[str]) -> dict[str, Array]:
        """Return the labels as uint8 (n, labels): 1 for each label of an image."""
        numbers = {name: number for number, name in enumerate(class_names)}
        different = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        rows = np.zeros((len(different), len(class_names)), np.uint8)
        for text, place in different.items():
            rows[place, [numbers[name] for name in json.loads(text)]] = 1
        return {LABELS: rows[[different[text] for text in texts]]}

    def words(self, records: Arrays, class_names: Sequence[str]) -> list[str]:
        """Return the names of each record's labels, separated by commas; ``none`` without labels."""
        return [", ".join(np.array(class_names)[labels > 0].tolist()) or "none" for labels in records[LABELS]]

    def census(self, records: Arrays, classes: int) -> npt.NDArray[np.int64]:
        """Count the records of each label."""
        return records[LABELS].sum(axis=0, dtype=np.int64)

    def check(self, records: Arrays, manifest: Manifest) -> tuple[int, str] | None:
        """Return the first record with a value other than 0 or 1, and the problem; see :meth:`Targets.check`."""
        for record, label in np.argwhere(records[LABELS] > 1)[:1].tolist():
            value = records[LABELS][record, label]
            return record, f"has the value {value} for the label {manifest.class_names[label]}, expected 0 or 1"
        return None


def _parts(value: Any) -> Iterable[Any]:
    """Return the label names in a value of a source; see :meth:`LabelTargets.text`."""
    if isinstance(value, np.generic):
        value = cast("Any", value).item()
    if isinstance(value, str):
        if value.startswith("[") and value.endswith("]"):
            return _list_in(value)
        mark = next((mark for mark in MARKS if mark in value), None)
        return [part for part in value.split(mark) if part.strip()] if mark else [value] if value.strip() else []
    if isinstance(value, Mapping):
        found = cast("Mapping[Any, Any]", value)
        if all(each in (0, 1) for each in found.values()):
            return [name for name, has in found.items() if has]
    if isinstance(value, (list, tuple, np.ndarray)):
        return cast("Iterable[Any]", value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value):
        return [value]
    raise ValueError(f"has the labels {shortened(value)}, expected a list of names ([] for no label)")


def _list_in(text: str) -> list[Any]:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return literal(text)
    except ValueError:
        raise ValueError(f'has the labels {shortened(text)}, expected a list such as ["cat", "dog"]') from None
