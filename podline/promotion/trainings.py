"""Finds the reference of a recipe, and the known trainings of the reference's recipe."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from podline.documents.any_evaluation import EVALUATION
from podline.documents.champions import Crowned
from podline.documents.completion import completion_name
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.origins import read_origin
from podline.documents.promotion import read_promotion
from podline.errors import PodlineError, SettingsError
from podline.inventory.catalogue import training_of
from podline.kinds.table import kind_of, read_evaluation
from podline.noise import MOST_TRAININGS
from podline.promotion.answers import JudgedSplit
from podline.recipes.settings import Recipe
from podline.stages.from_recipe import training_spec
from podline.stages.specs import SPEC, TrainSpec
from podline.stages.table import EVALUATE
from podline.store.contract import Store
from podline.strategies import StrategyName

# Number of newest trainings of a recipe that are searched.
_LOOKED_AT = 60


def reference_of(line: Sequence[Crowned], named: str = "") -> Crowned | None:
    """Return the champion that candidates are compared with, or None.

    It is the last champion that was shown to be better than its reference, or that a person promoted against the rules;
    otherwise the first champion. So losses within a margin cannot add up from champion to champion.

    Args:
        line: champions that were not rolled back, the current one last.
        named: the run in the settings, or empty.

    Raises:
        SettingsError: the run in the settings was never a champion.
    """
    if named:
        found = [entry for entry in line if entry.run == named]
        if not found:
            raise SettingsError(f"promotion.reference: got {named}, expected a champion: {_listed(line)}")
        return found[-1]
    return next((entry for entry in reversed(line) if entry.reference), line[0] if line else None)


def known_of(store: Store, reference: Crowned, candidate: str, said: Callable[[str], Any]) -> list[tuple[str, Any]]:
    """Return trainings that equal the reference's except for the seed, as (run, answers), without the candidate.

    They have its settings, data, code and packages, so their differences are noise. Refused trainings are left out,
    since more than their seed may be wrong.

    Args:
        store: the store.
        reference: the champion that defines recipe and data.
        candidate: the run to be judged.
        said: returns a run's answers to the compared examples, or None.
    """
    training, found = training_of(store, reference.run), list[tuple[str, Any]]()
    produced_by = _produced_by(store, training)
    for run in _newest(store, training.recipe.name):
        if run in (reference.run, candidate) or not store.exists(f"runs/{run}/{EVALUATION}"):
            continue
        peer, decision = training_of(store, run), read_promotion(store, f"runs/{run}")
        alike = (
            peer.fingerprint == training.fingerprint
            and _but_for_seed(peer.recipe) == _but_for_seed(training.recipe)
            and _produced_by(store, peer) == produced_by
        )
        if alike and not (decision and decision.verdict == "refused"):
            answers = said(run)
            found += [] if answers is None else [(run, answers)]
        if len(found) == MOST_TRAININGS - 1:
            break
    return found


def said_on(store: Store, run: str, splits: Sequence[JudgedSplit]) -> Any:
    """Return a run's answers to some examples; None if no evaluation covers them, or its files are missing.

    Args:
        store: the store.
        run: name of the run.
        splits: splits that contain these examples.
    """
    try:
        training = training_of(store, run)
        manifest = read_manifest(store, training.dataset_folder)
        for examples in splits:
            if examples_of(manifest, examples.split) == examples_of(examples.manifest, examples.split):
                document = read_evaluation(store, training.folder)
                answers = kind_of(document).answers()
                return answers.part(examples, answers.left(store, training.folder, document))
    except PodlineError:  # missing files of another run must not refuse this one
        pass
    return None


def examples_of(manifest: Manifest, split: str) -> tuple[str, ...]:
    """Return a split's checksums, which are equal for splits with the same records in the same order."""
    found = manifest.split(split)
    shards = (found.content,) if found.content else (shard.sha256 for shard in found.shards)
    return (*shards, *((found.truth.sha256,) if found.truth else ()))


def next_trainings(store: Store, reference: str, strategy: StrategyName) -> Iterator[TrainSpec]:
    """Yield the reference's training with new seeds, lowest first, endlessly.

    Args:
        store: the store.
        reference: the run of the reference.
        strategy: the distribution strategy.

    Raises:
        StoreError: the run or its data set is missing.
    """
    of = training_of(store, reference)
    for seed in itertools.count():
        training = training_spec(store, of.recipe.model_copy(update={"seed": seed}), of.fingerprint, strategy)
        if not store.exists(completion_name(training.folder, EVALUATE.name)):
            yield training


def _newest(store: Store, recipe: str) -> list[str]:
    """Return the runs of a recipe by their names, the last begun first."""
    specs = [found for found in store.listing("runs") if found.name.endswith(f"/{SPEC}") and found.name.count("/") == 2]
    specs = [found for found in specs if found.name.startswith(f"runs/{recipe}-")]
    newest = sorted(specs, key=lambda found: (-found.published, found.name))[:_LOOKED_AT]
    return [found.name.split("/")[1] for found in newest]


def _produced_by(store: Store, training: TrainSpec) -> Any:
    """Return the code and the packages that trained a run, or None."""
    origin = read_origin(store, training.folder)
    return (origin.code, origin.environment.packages) if origin else None


def _but_for_seed(recipe: Recipe) -> dict[str, Any]:
    return recipe.model_dump(exclude={"seed", "promotion"})


def _listed(line: Sequence[Crowned]) -> str:
    return ", ".join(entry.run for entry in line) or "there is none yet"
