"""What the model of a trained run is made of and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podline import entry_points
from podline.documents.completion import read_artifact
from podline.documents.manifest import Manifest
from podline.kinds.table import kind_of
from podline.models.counts import ModelDescription
from podline.recipes.networks import MODELS, SHIPPED
from podline.stages.specs import ARCHITECTURE, TrainSpec
from podline.store.contract import Store

if TYPE_CHECKING:
    import keras


def describe_run(store: Store, training: TrainSpec, manifest: Manifest) -> ModelDescription:
    """A run's model; that of an installed package is known by its architecture, and the package need not be there.

    Raises:
        StoreError: the architecture cannot be read.
        ArtifactError: it is not what was written.
    """
    recipe = training.recipe
    if recipe.model.kind in SHIPPED[MODELS]:
        height, width, channels = manifest.image_shape
        return kind_of(recipe).description(recipe, (height, width, channels), len(manifest.class_names))
    # TensorFlow is needed for this alone.
    describe = entry_points.load("podline.models.keras_counts:describe_architecture")
    return describe(recipe.model.kind, _architecture(store, training))


def untrained_model(store: Store, training: TrainSpec, manifest: Manifest) -> keras.Model:
    """A run's model with the weights that its training began with; see :func:`describe_run`."""
    recipe = training.recipe
    if recipe.model.kind in SHIPPED[MODELS]:
        return kind_of(recipe).model(recipe, manifest)
    return entry_points.load("podline.models.installed:from_architecture")(_architecture(store, training), recipe.seed)


def _architecture(store: Store, training: TrainSpec) -> str:
    name = f"{training.folder}/{ARCHITECTURE}"
    return read_artifact(store, training.folder, "train", name).decode(errors="replace")
