"""Compares two models example by example."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from podline.data.reader import SplitReader
from podline.datasets.census import census_of, same_examples
from podline.documents.manifest import Manifest, dataset_folder, read_manifest
from podline.errors import ArtifactError, SettingsError, StoreError
from podline.evaluation.differences import Difference, ShareChange, difference
from podline.evaluation.per_example import PerExample
from podline.kinds.by_example.answered import Answered
from podline.kinds.by_example.kind import ExampleKind
from podline.kinds.by_example.measures import drawn_rows, value_of, values_of
from podline.measures import Measure, measure_named, of_kind
from podline.noise import Floats, Seeds
from podline.reporting.pairs import Judged, LostExample, LostExamples
from podline.store.contract import Store

MOST_EXAMPLES = 24
"""The number of examples that are listed and shown."""
_SAMPLES = 200

Answers = TypeVar("Answers", bound=PerExample)


@dataclass(frozen=True)
class AnsweredPair:
    """Two models' answers, in the order of the second model's split.

    Attributes:
        before: the first model's answers.
        after: the second model's answers.
        measures: the measures of their kind.
        manifest: the manifest of the second model's data.
    """

    before: Answered
    after: Answered
    measures: Sequence[Measure]
    manifest: Manifest

    def differences(self, seeds: Mapping[str, Seeds]) -> dict[str, Difference]:
        """Return the difference of each measure on the same examples; see :class:`podline.reporting.pairs.Pair`."""
        found = dict[str, Difference]()
        for measure in (measure for measure in self.measures if measure.name in seeds):
            with contextlib.suppress(SettingsError):  # the evaluation has said why it is left out
                found[measure.name] = self._difference(measure, seeds[measure.name])
        return found

    def moved(self, names: Sequence[str]) -> dict[str, ShareChange]:
        """Return no changes, since there are no classes."""
        return {}

    def _difference(self, measure: Measure, seeds: Seeds) -> Difference:
        count, change = len(self.after.labels), value_of(measure, self.after) - value_of(measure, self.before)
        drawn = [
            value_of(measure, self.after.at(rows)) - value_of(measure, self.before.at(rows))
            for rows in drawn_rows(count, _SAMPLES)
        ]
        return difference(change, float(np.var(drawn, ddof=1)), seeds, count, paired=True)


def pair(kind: ExampleKind, store: Store, before: Judged, after: Judged) -> AnsweredPair:
    """Pair two evaluations on the same examples; see :func:`podline.reporting.pairs.paired`."""
    manifest = read_manifest(store, dataset_folder(after.dataset, after.fingerprint))
    return AnsweredPair(*aligned(store, before, after, Answered), of_kind(kind.name), manifest)


def lost_examples(kind: ExampleKind, pair: AnsweredPair, reader: SplitReader) -> LostExamples:
    """Return the examples that the first model answered better, ordered by the loss in the main measure.

    The result is empty for a measure that is not a mean over examples.
    """

    def lost(record: int) -> LostExample:
        values = (said[record : record + 1] for said in (pair.after.labels, pair.before.answers, pair.after.answers))
        (name,), (was,), (is_now,) = (kind.words(each, pair.manifest) for each in values)
        return LostExample(record=record, name=name, before=was, after=is_now)

    gain = _gains(measure_named(kind.measure), pair)
    return lost_images(reader, gain < 0, gain > 0, gain, lost)


def _gains(measure: Measure, pair: AnsweredPair) -> Floats:
    """Return the improvement of each example's answer, (n,); empty for a measure that is a single number."""
    then, now = (np.atleast_1d(values_of(measure, each)).astype(float) for each in (pair.before, pair.after))
    gain = now - then if measure.higher_is_better else then - now
    return gain if len(gain) == len(pair.after.labels) else np.empty(0)


def aligned(store: Store, before: Judged, after: Judged, answers: type[Answers]) -> tuple[Answers, Answers]:
    """Return two models' answers for the same examples, in the order of the second split.

    Args:
        store: the store.
        before: the first evaluation.
        after: the second evaluation.
        answers: the class that reads the answers beside ``evaluation.json``.

    Raises:
        StoreError: the examples differ, or a file of answers is missing.
        ArtifactError: a file is damaged.
    """
    then, now = (answers.read(store, each.folder) for each in (before, after))
    if before.places is not None and after.places is not None:
        return then.at(before.places), now.at(after.places)
    same = before.fingerprint == after.fingerprint
    places = np.arange(len(now.labels)) if same else _places(store, before, after)
    files = " and ".join(store.where(f"{each.folder}/{answers.file}") for each in (after, before))
    if not len(then.labels) == len(now.labels) == len(places):
        raise ArtifactError(
            f"{files} hold {len(now.labels)} and {len(then.labels)} {answers.holds} vs {len(places)} examples; "
            "evaluate the runs again"
        )
    ordered = then.at(places)
    if not np.array_equal(ordered.labels, now.labels):
        raise ArtifactError(f"{files} belong to different examples; evaluate the runs again")
    return ordered, now


def _places(store: Store, before: Judged, after: Judged) -> npt.NDArray[np.int64]:
    """Return the place in the first split of each example of the second."""
    there, here = (census_of(store, each.dataset, each.fingerprint)[each.split] for each in (before, after))
    then, now = same_examples(there, here)
    if not len(now) == len(there) == len(here):
        raise StoreError(f"the test sets differ: {len(now)} of {len(there)} and {len(here)} examples are the same")
    return then[np.argsort(now)]


def lost_images(
    reader: SplitReader,
    then: npt.NDArray[np.bool_],
    now: npt.NDArray[np.bool_],
    order: Floats,
    example: Callable[[int], LostExample],
) -> LostExamples:
    """Return examples that only the first of two models answered correctly.

    Args:
        reader: the reader of the split.
        then: which examples the first model answered correctly, (n,).
        now: which examples the second model answered correctly.
        order: a number per example; the lowest are shown first, (n,).
        example: describes one record.
    """
    lost = np.flatnonzero(then & ~now)
    records = lost[np.argsort(order[lost], kind="stable")][:MOST_EXAMPLES]
    images = reader.gather(records, ["image"])["image"] if len(records) else ()
    examples = [example(record) for record in records.tolist()]
    return LostExamples(len(lost), int((now & ~then).sum()), examples, [(image,) for image in images])
