"""Pairs two evaluated runs example by example, for comparisons.

If two runs were not evaluated on the same examples, or their answers are missing, an error says so; then only their
figures with intervals can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from podline.documents.any_evaluation import AnyEvaluation
from podline.errors import StoreError
from podline.evaluation.differences import PART_LEVEL, Chance, Difference, ShareChange, chance_of, chances
from podline.frozen import Frozen
from podline.kinds.table import kind_by_measure
from podline.noise import Seeds
from podline.reporting.seed_spread import SeedSpread
from podline.store.contract import Store

Image = npt.NDArray[np.uint8]


class Judged(NamedTuple):
    """An evaluation of a run.

    Attributes:
        folder: its folder.
        measure: name of the main metric.
        dataset: name of the evaluated data set …
        fingerprint: … its fingerprint …
        split: … and the evaluated split.
        places: places of the examples that count, (n,); None for all.
    """

    folder: str
    measure: str
    dataset: str
    fingerprint: str
    split: str
    places: npt.NDArray[np.int64] | None = None


def judgement(folder: str, evaluation: AnyEvaluation) -> Judged:
    """Describe the evaluation in a folder."""
    return Judged(folder, evaluation.measure, evaluation.dataset, evaluation.fingerprint, evaluation.split)


class Pair(Protocol):
    """Two models' answers for the same examples."""

    def differences(self, seeds: Mapping[str, Seeds]) -> dict[str, Difference]:
        """Return the differences of metrics on the same examples, by name, including the main metric.

        Args:
            seeds: the effect of the seed on each metric.
        """
        ...

    def moved(self, names: Sequence[str]) -> Mapping[str, ShareChange]:
        """Return the change of each class or joint, by name.

        Args:
            names: names of all classes, in the order of their labels, or of all joints.
        """
        ...


class MovedPart(Frozen):
    """A class or joint: its share of right answers in both runs, and the probability of such a change by chance.

    ``p_value`` is corrected for the number of parts: for all parts together it gives the false-alarm rate.
    """

    name: str
    before: float
    after: float
    p_value: float
    seeds_known: bool

    @property
    def change(self) -> float:
        """The change of its share."""
        return self.after - self.before

    @property
    def chance(self) -> Chance:
        """Return whether chance explains the change; see :class:`podline.evaluation.differences.Difference`."""
        return chance_of(self.p_value, known=self.seeds_known, level=PART_LEVEL)


def moved_parts(pair: Pair, names: Sequence[str], spread: SeedSpread) -> list[MovedPart]:
    """Return every class or joint, largest loss first; see :meth:`Pair.moved`."""
    moved = pair.moved(names)
    seeds = spread.of_parts({name: share.before for name, share in moved.items()})
    by_chance = chances(moved, seeds)
    parts = (
        MovedPart(
            name=name,
            before=share.before,
            after=share.after,
            p_value=by_chance[name],
            seeds_known=seeds[name].known,
        )
        for name, share in moved.items()
    )
    return sorted(parts, key=lambda part: part.change)


class LostExample(Frozen):
    """An example that only the other run gets right, or an image in which it finds more joints.

    Attributes:
        record: its place in the split, for :meth:`podline.data.reader.SplitReader.gather`.
        name: its class, or COCO's id of the image.
        before: the other run's answer.
        after: this run's answer.
    """

    record: int
    name: str
    before: str
    after: str


class LostExamples(NamedTuple):
    """The examples that only the first model got right.

    Attributes:
        lost: number of these examples, or people.
        gained: number that only the second model got right.
        examples: some of the lost examples.
        pictures: per example, uint8 (height, width, channels): the image, or one picture with the result of each model.
    """

    lost: int
    gained: int
    examples: list[LostExample]
    pictures: list[tuple[Image, ...]]


def paired(store: Store, before: Judged, after: Judged) -> Pair:
    """Pair two evaluations on the same examples.

    Raises:
        StoreError: the examples differ, or the answers of a run are missing.
        ArtifactError: a file is damaged.
    """
    if before.measure != after.measure:
        raise StoreError(f"there is nothing to compare: {before.measure} vs {after.measure}")
    if (before.dataset, before.split) != (after.dataset, after.split):
        raise StoreError(f"the test sets differ: {before.dataset} {before.split} vs {after.dataset} {after.split}")
    return kind_by_measure(after.measure).pair(store, before, after)
