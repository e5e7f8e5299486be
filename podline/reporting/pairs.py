"""Two judged runs, example by example; comparisons are made from it.

Where two were not judged on the same examples, or what was said of each is no longer there, that is an error that says
why; then two figures with intervals of their own are all there is to go by.
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
    """A judgement of a run.

    Attributes:
        folder: that it lies in.
        measure: the metric that counts.
        dataset: what was judged on: the data set's name …
        fingerprint: … its fingerprint …
        split: … and which split of it.
        places: of the examples in it that count, (n,); None if all do.
    """

    folder: str
    measure: str
    dataset: str
    fingerprint: str
    split: str
    places: npt.NDArray[np.int64] | None = None


def judgement(folder: str, evaluation: AnyEvaluation) -> Judged:
    """Return what a folder's evaluation judged."""
    return Judged(folder, evaluation.measure, evaluation.dataset, evaluation.fingerprint, evaluation.split)


class Pair(Protocol):
    """Two models on the same examples."""

    def differences(self, seeds: Mapping[str, Seeds]) -> dict[str, Difference]:
        """Return the differences of metrics on the same examples, by name; the one that counts is among them.

        Args:
            seeds: what a seed does to each metric.
        """
        ...

    def moved(self, names: Sequence[str]) -> Mapping[str, ShareChange]:
        """Return the change of each class or joint, by name.

        Args:
            names: of all classes, in the order of their labels, or of all joints.
        """
        ...


class MovedPart(Frozen):
    """A class or a joint: its share of right answers in both runs, and how likely such a movement is by chance.

    ``p_value`` is raised for how many parts there are: of all together, one is below a rate by chance no more often.
    """

    name: str
    before: float
    after: float
    p_value: float
    seeds_known: bool

    @property
    def change(self) -> float:
        """By how much its share changed."""
        return self.after - self.before

    @property
    def chance(self) -> Chance:
        """Return whether chance could well have moved it; see :class:`podline.evaluation.differences.Difference`."""
        return chance_of(self.p_value, known=self.seeds_known, level=PART_LEVEL)


def moved_parts(pair: Pair, names: Sequence[str], spread: SeedSpread) -> list[MovedPart]:
    """Return every class or joint, the one that fell most first; see :meth:`Pair.moved`."""
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
    """An example that the other run gets right and this one does not, or an image in which it finds more joints.

    Attributes:
        record: its place in the split, as :meth:`podline.data.reader.SplitReader.gather` takes it.
        name: its class, or COCO's id of the image.
        before: what the other run says of it.
        after: what this one says.
    """

    record: int
    name: str
    before: str
    after: str


class LostExamples(NamedTuple):
    """Return the examples that the first model got right and the second got wrong.

    Attributes:
        lost: how many examples, or people.
        gained: how many the other way round.
        examples: some of those lost.
        pictures: of each of these, uint8 (height, width, channels): the image as it is, or one with what the first
            finds and one with what the second does.
    """

    lost: int
    gained: int
    examples: list[LostExample]
    pictures: list[tuple[Image, ...]]


def paired(store: Store, before: Judged, after: Judged) -> Pair:
    """Two judgements on the same examples.

    Raises:
        StoreError: they are not of the same examples, or what was said of each of them is no longer there.
        ArtifactError: a file is damaged.
    """
    if before.measure != after.measure:
        raise StoreError(f"there is nothing to compare: {before.measure} vs {after.measure}")
    if (before.dataset, before.split) != (after.dataset, after.split):
        raise StoreError(f"the test sets differ: {before.dataset} {before.split} vs {after.dataset} {after.split}")
    return kind_by_measure(after.measure).pair(store, before, after)
