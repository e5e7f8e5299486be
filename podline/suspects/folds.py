"""The trainings behind a pass over a data set's labels: each leaves out a part of the training split."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from podline.documents.manifest import TRAIN, manifest_digest, read_manifest
from podline.errors import SettingsError
from podline.inventory.catalogue import dataset_for
from podline.kinds.shipped import USUAL_KIND
from podline.progress import Reporter
from podline.recipes.own_code import with_code
from podline.recipes.settings import Recipe
from podline.stages.from_recipe import fitted, training_spec, with_checksum
from podline.stages.specs import TrainResult, TrainSpec
from podline.stages.suspects import SuspectsSpec
from podline.store.contract import Store
from podline.strategies import WORKERS, StrategyName

Train = Callable[[TrainSpec], TrainResult]
"""Does a training, or finds it done."""

PARTS = 4
# The list is as long as this share of it is expected to be wrong.
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
    """Return the trainings whose models judge the labels of a data set: each part of it by one that lacks it.

    Args:
        store: the store.
        recipe: what is trained.
        reporter: is told which data set is taken if there are several.
        fingerprint: which data set, by the start of its fingerprint; the newest by default.
        parts: how many.
        strategy: where they run.

    Raises:
        SettingsError: a recipe without one class an image, several processes, or more parts than records.
        StoreError: there is no such data set.
    """
    if recipe.kind != USUAL_KIND:
        raise SettingsError(
            f"got the kind {recipe.kind} of {recipe.name}, expected {USUAL_KIND}: suspects are found by an image's "
            "class; give a recipe that classifies"
        )
    if strategy == WORKERS:
        raise SettingsError(f"got strategy={strategy}, models are asked in one process; give auto, cpu, gpu or tpu")
    dataset = dataset_for(store, recipe, fingerprint, reporter)
    records = read_manifest(store, dataset.folder).split(TRAIN).records
    if parts > records:
        raise SettingsError(f"got parts={parts}, expected at most the {records} training records of {recipe.dataset}")
    # Its values are those for the whole split, also where a part makes it smaller. By its name it is no run of the
    # recipe, whose newest one is evaluated, and whose spread between seeds is known from all. An earlier run would
    # have learned what a part lacks.
    whole = fitted(store, recipe, dataset.folder).changed(further=None)
    folds = (whole.changed(name=f"{recipe.name}-part", without_part=f"{number}/{parts}") for number in range(parts))
    return [training_spec(store, fold, dataset.fingerprint, strategy) for fold in folds]


def suspects_spec(
    store: Store, trainings: Sequence[TrainSpec], train: Train, reporter: Reporter, precision: float = PRECISION
) -> SuspectsSpec:
    """Train what is not trained yet; return the pass with these models. One that was killed goes on where it was.

    Args:
        store: the store.
        trainings: of :func:`fold_specs`.
        train: does one.
        reporter: hears of each.
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
