"""Finds the examples that one model answered better than another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from podline.compare.answers import LostExample, LostExamples
from podline.compare.figures import Compared
from podline.compare.noise import Floats
from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest
from podline.kinds.by_example.kind import ExampleKind
from podline.kinds.by_example.measures import values_of
from podline.measures import Measure, measure_named

MOST_EXAMPLES = 24
"""The number of examples that are listed and shown."""


def lost_examples(kind: ExampleKind, compared: Compared, reader: SplitReader, manifest: Manifest) -> LostExamples:
    """Return the examples that the first model answered better, ordered by the loss in the main measure.

    The result is empty for a measure that is not a mean over examples.
    """
    before, after = compared.known[0], compared.candidate

    def lost(place: int) -> tuple[str, str, str]:
        values = (answers[place : place + 1] for answers in (after.labels, before.answers, after.answers))
        (name,), (was,), (is_now,) = (kind.words(each, manifest) for each in values)
        return name, was, is_now

    gain = _gains(measure_named(kind.measure), compared)
    return lost_images(compared, reader, gain < 0, gain > 0, gain, lost)


def _gains(measure: Measure, compared: Compared) -> Floats:
    """Return the improvement of each example's answer, (n,); empty for a measure that is a single number."""
    sides = compared.known[0], compared.candidate
    then, now = (np.atleast_1d(values_of(measure, each)).astype(float) for each in sides)
    gain = now - then if measure.higher_is_better else then - now
    return gain if len(gain) == len(compared.candidate.labels) else np.empty(0)


def lost_images(
    compared: Compared,
    reader: SplitReader,
    then: npt.NDArray[np.bool_],
    now: npt.NDArray[np.bool_],
    order: Floats,
    described: Callable[[int], tuple[str, str, str]],
) -> LostExamples:
    """Return examples that only the first of two models answered correctly.

    Args:
        compared: the models.
        reader: the reader of the split.
        then: which examples the first model answered correctly, (n,).
        now: which examples the second model answered correctly.
        order: a number per example; the lowest are shown first, (n,).
        described: returns the name of an example, and both answers to it.
    """
    lost = np.flatnonzero(then & ~now)
    chosen = lost[np.argsort(order[lost], kind="stable")][:MOST_EXAMPLES]
    records = chosen if compared.places is None else compared.places[chosen]
    images = reader.gather(records, ["image"])["image"] if len(records) else ()
    examples = list[LostExample]()
    for record, place in zip(records.tolist(), chosen.tolist(), strict=True):
        name, was, is_now = described(place)
        examples.append(LostExample(record=record, name=name, before=was, after=is_now))
    return LostExamples(len(lost), int((now & ~then).sum()), examples, [(image,) for image in images])
