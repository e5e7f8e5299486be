"""Makes the trainings for a search of doubtful labels, like cross-validation: each leaves out a part of the split."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from podline.base.errors import SettingsError
from podline.base.progress import Reporter
from podline.documents.manifest import TRAINING, USUAL_KIND, manifest_digest, read_manifest
from podline.ledger.inventory.catalogue import dataset_for
from podline.recipes.own_code import with_code
from podline.recipes.settings import Recipe
from podline.settings.strategies import WORKERS, StrategyName
from podline.stages.from_recipe import fitted, training_spec, with_checksum
from podline.stages.specs import TrainResult, TrainSpec
from podline.stages.suspects import SuspectsSpec
from podline.store.contract import Store

Train = Callable[[TrainSpec], TrainResult]
"""A function that trains a spec, or returns the result of an earlier call."""

PARTS = 4
# The default share of wrong labels in the list of suspects.
PRECISION = 0.75


def fold_specs(
    store: Store,
    recipe: Recipe,
    reporter: Reporter,
    *,
    fingerprint: str | None = None,
    parts: int = PARTS,
    strategy: StrategyName = "auto",
) -> list[TrainSpec]:
    """Return the trainings whose models check the labels of a data set: one for each part, without this part.

    Args:
        store: the store.
        recipe: the recipe to train.
        reporter: reports the data set that is chosen among several.
        fingerprint: the start of the data set's fingerprint; by default the newest data set.
        parts: number of parts.
        strategy: the distribution strategy.

    Raises:
        SettingsError: the recipe does not have one class per image, the strategy uses several processes, or there are
            more parts than records.
        StoreError: the data set does not exist.
    """
    if recipe.kind != USUAL_KIND:
        raise SettingsError(
            f"got the kind {recipe.kind} of {recipe.name}, expected {USUAL_KIND}: suspects are found by an image's "
            "class; give a recipe of that kind"
        )
    if strategy == WORKERS:
        raise SettingsError(f"got strategy={strategy}, suspects are found in one process; give auto, cpu, gpu or tpu")
    dataset = dataset_for(store, recipe, fingerprint, reporter)
    records = read_manifest(store, dataset.folder).split(TRAINING).records
    if parts > records:
        raise SettingsError(f"got parts={parts}, expected at most the {records} training records of {recipe.dataset}")
    # The values are those for the whole split, although a part is missing. The run's name differs from the recipe's, so
    # that it neither counts as the newest run to evaluate nor in the spread between seeds. It cannot continue an
    # earlier run, which would have seen the missing part.
    whole = fitted(store, recipe, dataset.folder).changed(further=None)
    folds = (whole.changed(name=f"{recipe.name}-part", without_part=f"{number}/{parts}") for number in range(parts))
    return [training_spec(store, fold, dataset.fingerprint, strategy) for fold in folds]


def suspects_spec(
    store: Store, trainings: Sequence[TrainSpec], train: Train, reporter: Reporter, precision: float = PRECISION
) -> SuspectsSpec:
    """Train the missing models; return the spec of the search with these models. A call after a killed one resumes.

    Args:
        store: the store.
        trainings: the result of :func:`fold_specs`.
        train: trains one spec.
        reporter: reports each training.
        precision: see :class:`SuspectsSpec`.
    """
    results = list[TrainResult]()
    for number, training in enumerate(trainings):
        reporter.progress(number, len(trainings), "trainings")
        results.append(train(training))
    first = trainings[0]
    return SuspectsSpec(
        root=store.uri,
        recipe=with_code(with_checksum(first.recipe.changed(without_part=""))),
        fingerprint=first.fingerprint,
        manifest_digest=manifest_digest(store, first.dataset_folder),
        strategy=first.strategy,
        runs=tuple(result.run for result in results),
        weights=tuple(result.weights_sha256 for result in results),
        precision=precision,
    )
