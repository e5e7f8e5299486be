"""Two judged runs, example by example; comparisons are made from it.

Where two were not judged on the same examples, or what was said of each is no longer there, that is an error that says
why; then two figures with intervals of their own are all there is to go by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pycocotools.cocoeval import COCOeval

from podline.data.coco_truth import read_truth
from podline.datasets.census import census_of, same_examples
from podline.documents.evaluation import Evaluation
from podline.documents.manifest import dataset_folder, read_manifest
from podline.documents.pose_evaluation import PoseEvaluation, read_people
from podline.errors import ArtifactError, StoreError
from podline.evaluation import noise
from podline.evaluation.guesses import GUESSES, Guesses, read_guesses
from podline.evaluation.moved_parts import ShareChange, moved_classes, moved_joints
from podline.evaluation.noise import Difference
from podline.evaluation.oks import CloseJoints, close_joints, judged
from podline.store.contract import Store

Measure = Literal["top1", "ap"]


class Judged(NamedTuple):
    """A judgement of a run.

    Attributes:
        folder: that it lies in.
        measure: the metric that counts.
        dataset: what was judged on: the data set's name …
        fingerprint: … its fingerprint …
        split: … and which split of it.
    """

    folder: str
    measure: Measure
    dataset: str
    fingerprint: str
    split: str


def measure_of(evaluation: Evaluation | PoseEvaluation) -> Measure:
    """The metric that counts."""
    return "ap" if isinstance(evaluation, PoseEvaluation) else "top1"


def judgement(folder: str, evaluation: Evaluation | PoseEvaluation) -> Judged:
    """What a folder's evaluation was of."""
    return Judged(folder, measure_of(evaluation), evaluation.dataset, evaluation.fingerprint, evaluation.split)


@dataclass(frozen=True)
class GuessedPair:
    """Two classifiers, in the order of the second's split.

    Attributes:
        before: what the first said.
        after: what the second said.
    """

    before: Guesses
    after: Guesses

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Of the metrics that can be held against each other so, by name; the one that counts is among them."""
        return {"top1": noise.accuracies(self.before.right, self.after.right)}

    def moved(self, class_names: Sequence[str]) -> dict[str, ShareChange]:
        """How each class moved, by name."""
        return moved_classes(self.before, self.after, class_names)


@dataclass(frozen=True)
class FoundPair:
    """Two pose networks.

    Attributes:
        before: the people that the first found, judged.
        after: those of the second.
    """

    before: COCOeval
    after: COCOeval

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Of the metrics that can be held against each other so, by name; the one that counts is among them."""
        return noise.average_precisions(self.before, self.after)

    @cached_property
    def people(self) -> tuple[dict[int, CloseJoints], dict[int, CloseJoints]]:
        """Those in truth, by the annotation's id, as the first network found them, and as the second did."""
        return close_joints(self.before), close_joints(self.after)

    def moved(self) -> dict[str, ShareChange]:
        """How each joint moved, by name."""
        return moved_joints(*self.people)


def paired(store: Store, before: Judged, after: Judged) -> GuessedPair | FoundPair:
    """Two judgements on the same examples.

    Raises:
        StoreError: they are not of the same examples, or what was said of each of them is no longer there.
        ArtifactError: a file is damaged.
    """
    if before.measure != after.measure:
        raise StoreError(f"there is nothing to compare: {before.measure} vs {after.measure}")
    if (before.dataset, before.split) != (after.dataset, after.split):
        raise StoreError(f"the test sets differ: {before.dataset} {before.split} vs {after.dataset} {after.split}")
    return _found(store, before, after) if after.measure == "ap" else _guessed(store, before, after)


def _guessed(store: Store, before: Judged, after: Judged) -> GuessedPair:
    then, now = (read_guesses(store, each.folder) for each in (before, after))
    same = before.fingerprint == after.fingerprint
    places = np.arange(len(now.labels)) if same else _places(store, before, after)
    if not len(then.labels) == len(now.labels) == len(places):
        raise ArtifactError(
            f"{store.where(f'{after.folder}/{GUESSES}')} and {store.where(f'{before.folder}/{GUESSES}')} hold "
            f"{len(now.labels)} and {len(then.labels)} guesses vs {len(places)} examples; evaluate the runs again"
        )
    ordered = Guesses(**{field.name: getattr(then, field.name)[places] for field in fields(Guesses)})
    if not np.array_equal(ordered.labels, now.labels):
        raise ArtifactError(
            f"{store.where(f'{after.folder}/{GUESSES}')} and {store.where(f'{before.folder}/{GUESSES}')} are not of "
            "the same examples; evaluate the runs again"
        )
    return GuessedPair(ordered, now)


def _places(store: Store, before: Judged, after: Judged) -> npt.NDArray[np.int64]:
    """For each example of the second's split, where the first's has it."""
    there, here = (census_of(store, each.dataset, each.fingerprint)[each.split] for each in (before, after))
    then, now = same_examples(there, here)
    if not len(now) == len(there) == len(here):
        raise StoreError(f"the test sets differ: {len(now)} of {len(there)} and {len(here)} examples are the same")
    return then[np.argsort(now)]


def _found(store: Store, before: Judged, after: Judged) -> FoundPair:
    truths = [_truth(store, each) for each in (before, after)]
    if truths[0] != truths[1]:
        raise StoreError("the test sets differ: other images, or other people in them")
    people = [read_people(store, each.folder, each.split) for each in (before, after)]
    then, now = (judged(truths[0], each) for each in people)
    return FoundPair(then, now)


def _truth(store: Store, of: Judged) -> dict[str, Any]:
    folder = dataset_folder(of.dataset, of.fingerprint)
    return read_truth(store, folder, read_manifest(store, folder), of.split)
