"""From a recipe to the specs of conversion, training and evaluation; one way for command and flow."""

from __future__ import annotations

from podline import entry_points, measures
from podline.documents.manifest import dataset_folder, manifest_digest, read_manifest
from podline.frozen import JsonObject
from podline.recipes import datasets, own_code
from podline.recipes.datasets import ConverterSettings
from podline.recipes.own_code import with_code
from podline.recipes.settings import Recipe
from podline.stages.preflight import PaceSpec
from podline.stages.specs import JUDGED, EvaluateSpec, TrainResult, TrainSpec
from podline.stages.weights_file import with_checksum
from podline.store.contract import Store
from podline.strategies import StrategyName


def converter_settings(dataset: str, recipe: Recipe | None, given: JsonObject) -> ConverterSettings:
    """The settings of a conversion that its data set alone has.

    Args:
        dataset: its name.
        recipe: what the data is for, which says what is not given; None is nothing.
        given: settings by name.

    Raises:
        SettingsError: there is no such data set, it has no such setting, or a value cannot be.
    """
    pose, said = (recipe.pose, recipe.conversion) if recipe else (None, {})
    of_pose = {"side": pose.side, "max_people": pose.max_people} if pose else {}
    return datasets.find(dataset).settings_of({**of_pose, **said, **given})


def training_spec(store: Store, recipe: Recipe, fingerprint: str, strategy: StrategyName) -> TrainSpec:
    """The training of a recipe on a data set, as that is now; its batch fits the data, where the recipe asks for it.

    Raises:
        StoreError: there is no such data set.
        ArtifactError: its manifest is not what was published.
        SettingsError: the recipe's file of weights cannot be read.
    """
    folder = dataset_folder(recipe.dataset, fingerprint)
    return TrainSpec(
        root=store.uri,
        recipe=with_code(with_checksum(fitted(store, recipe, folder))),
        fingerprint=fingerprint,
        manifest_digest=manifest_digest(store, folder),
        strategy=strategy,
    )


def pace_spec(training: TrainSpec, minutes: float) -> PaceSpec:
    """How long the training may be within some minutes."""
    return PaceSpec.model_validate({**training.model_dump(exclude={"preflight"}), "minutes": minutes})


def fitted(store: Store, recipe: Recipe, folder: str) -> Recipe:
    """The recipe with a batch that is no larger than the training split of a data set's folder, if it asks for it."""
    if not recipe.fit_batch:
        return recipe
    held_out = round(recipe.validation_share * (records := read_manifest(store, folder).split("train").records))
    return recipe.model_copy(update={"batch_size": max(1, min(recipe.batch_size, records - held_out))})


def evaluation_spec(training: TrainSpec, trained: TrainResult, split: str = JUDGED) -> EvaluateSpec:
    """The evaluation of a run on a split of the data set that it was trained on."""
    return EvaluateSpec(
        root=training.root,
        run=trained.run,
        dataset=training.recipe.dataset,
        fingerprint=training.fingerprint,
        manifest_digest=training.manifest_digest,
        weights_sha256=trained.weights_sha256,
        split=split,
        batch_size=training.recipe.evaluation_batch_size,
        views=training.recipe.views,
        measures=_measures() if training.recipe.kind == "classification" else {},
        strategy=training.strategy,
    )


def _measures() -> dict[str, str]:
    """Return the digest of each installed measure's code, by its name."""
    return {point.name: own_code.of_point(point) for point in entry_points.installed(measures.ENTRY_POINTS)}
