"""Finds the known trainings of a run: trainings in the ledger that differ from the run in the seed alone."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Container, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from podline.base.errors import PodlineError
from podline.contract.answers import CommonExamples
from podline.contract.kind import kind_of
from podline.contract.noise import MOST_TRAININGS
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.completion import completion_name
from podline.documents.ledger_entry import Entry
from podline.documents.manifest import read_manifest
from podline.documents.origins import read_origin
from podline.documents.promotion import read_promotion
from podline.ledger import ledger
from podline.ledger.alike import training_key
from podline.ledger.inventory.catalogue import training_of
from podline.recipes.kind_table import read_evaluation
from podline.settings.strategies import StrategyName
from podline.stages.from_recipe import training_spec
from podline.stages.specs import TrainSpec
from podline.stages.table import EVALUATE
from podline.store.contract import Store

LOOKED_AT = 60
"""Largest number of ledger entries to read, a recipe's newest: reading them from a bucket takes about a second."""


def recent(
    store: Store, recipe: str, until: float | None, damaged: Callable[[Exception], None] = lambda _: None
) -> Iterator[Entry]:
    """Yield the newest finished entries of a recipe, newest first, at most :data:`LOOKED_AT`.

    Args:
        store: the store.
        recipe: the exact name of the recipe.
        until: only entries that ended before this Unix time.
        damaged: called with the error of each damaged entry, which is left out.
    """
    before = None if until is None else datetime.fromtimestamp(until, UTC)
    wanted = ledger.names(store, recipe=recipe, state="finished", until=before)
    yield from ledger.entries(store, wanted[:LOOKED_AT], damaged=damaged)


def known_trainings(
    store: Store,
    training: TrainSpec,
    without: Container[str],
    answers: Callable[[str], Any],
    until: float | None = None,
) -> list[tuple[str, Any]]:
    """Return at most 19 trainings that equal a run except for the seed, as (run, answers), newest first.

    These trainings have the run's settings, data, training code and libraries, so the differences are noise. Trainings
    that promotion refused are left out, since they may have other faults; so are damaged ones.

    Args:
        store: the store.
        training: the training of the run.
        without: names of runs to leave out.
        answers: returns a run's answers to the compared examples, or None.
        until: see :func:`recent`.
    """
    try:
        origin = read_origin(store, training.folder)
    except PodlineError:
        return []
    found = dict[str, Any]()
    key = training_key(origin) if origin else ""
    for entry in recent(store, training.recipe.name, until) if key else ():
        if entry.run in (training.run, *found) or entry.run in without or entry.outcome is None:
            continue
        if training_key(entry) == key and not _refused(store, entry):
            given = answers(entry.run)
            found |= {} if given is None else {entry.run: given}
        if len(found) == MOST_TRAININGS - 1:
            break
    return [*found.items()]


def _refused(store: Store, entry: Entry) -> bool:
    try:
        decision = read_promotion(store, f"runs/{entry.run}") or entry.promotion
    except PodlineError:
        return True
    return decision is not None and decision.verdict == "refused"


class Evaluated(NamedTuple):
    """A run's training and evaluation; ``folder`` is the folder of the evaluation."""

    training: TrainSpec
    folder: str
    evaluation: AnyEvaluation

    def answers(self, store: Store, splits: Sequence[CommonExamples]) -> Any:
        """Return the run's stored answers to some examples; None if the evaluation is of none of the splits.

        Args:
            store: the store.
            splits: splits that contain the examples, each with the examples' positions; the first fitting one counts.

        Raises:
            StoreError: a file is missing.
            ArtifactError: a file is damaged.
        """
        kind, data = kind_of(self.evaluation).answers(), self.training.dataset_folder
        manifest = read_manifest(store, data)
        for examples in splits:
            own = CommonExamples(store, data, manifest, examples.split, examples.reporter)
            if self.evaluation.split == examples.split and own.checksums == examples.checksums:
                return kind.part(examples, kind.left(store, self.folder, self.evaluation))
        return None


def evaluated(store: Store, run: str, folder: str = "") -> Evaluated:
    """Read a run's evaluation, by default that of the test split.

    Raises:
        StoreError: a file is missing.
        ArtifactError: a file is damaged.
    """
    training = training_of(store, run)
    folder = folder or training.folder
    return Evaluated(training, folder, read_evaluation(store, folder))


def answers_on(store: Store, run: str, splits: Sequence[CommonExamples]) -> Any:
    """Return a run's stored answers to some examples; None for another split, and for missing or damaged files."""
    with contextlib.suppress(PodlineError):  # missing files of another run must not stop this one
        return evaluated(store, run).answers(store, splits)
    return None


def next_trainings(
    store: Store, reference: str, strategy: StrategyName, seeds: int | None = None
) -> Iterator[TrainSpec]:
    """Yield trainings like a run's with other seeds, lowest seed first, without those that are evaluated already.

    Args:
        store: the store.
        reference: name of the run.
        strategy: the distribution strategy.
        seeds: how many other seeds to consider, from the lowest; None for all.

    Raises:
        StoreError: the run or its data set is missing.
    """
    of = training_of(store, reference)
    others = (seed for seed in itertools.count() if seed != of.recipe.seed)
    for seed in itertools.islice(others, seeds):
        training = training_spec(store, of.recipe.model_copy(update={"seed": seed}), of.fingerprint, strategy)
        if not store.exists(completion_name(training.folder, EVALUATE.name)):
            yield training
