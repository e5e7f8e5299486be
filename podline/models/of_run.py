"""Loads a trained run's model from its architecture file, even if the model's package is not installed."""

from __future__ import annotations

from typing import Any

import keras

from podline.base.errors import ArtifactError, SettingsError
from podline.documents.completion import read_artifact
from podline.documents.reading import read_model
from podline.models.build import trainable_model
from podline.models.keras_internals import fresh_names
from podline.models.precision import POLICIES, policy_of_layers
from podline.recipes.parts import MODELS
from podline.stages.specs import ARCHITECTURE, SPEC, TrainSpec
from podline.store.contract import Store


def network_of(store: Store, folder: str) -> keras.Model:
    """Return a run's model with Keras's layers and arbitrary weights.

    Raises:
        StoreError: the architecture cannot be read.
        ArtifactError: the architecture has changed, or has a layer of a missing class.
    """
    name = f"{folder}/{ARCHITECTURE}"
    text = read_artifact(store, folder, "train", name).decode(errors="replace")
    spec = read_model(store, f"{folder}/{SPEC}", TrainSpec, "a training spec", "train the run again")
    return loaded_network(text, spec.recipe.model.kind, store.where(name))


def loaded_network(text: str, kind: str, where: str) -> keras.Model:
    """Build the model of an architecture, with arbitrary weights.

    Args:
        text: the architecture, as JSON of Keras.
        kind: the model's name in the recipe; the package of this model registers its layer classes.
        where: the path of the architecture file, for messages.

    Raises:
        ArtifactError: the architecture has a layer of a missing class, or cannot be loaded.
    """
    missing = ""
    try:
        MODELS.load(kind)  # registers its layers with Keras
    except SettingsError as error:
        missing = f"; {error}"
    try:
        with fresh_names(), policy_of_layers(POLICIES["float32"]):
            model: Any = keras.models.model_from_json(text)
    except (ValueError, TypeError, KeyError) as error:
        raise ArtifactError(
            f"{where} cannot be loaded as a model ({error}{missing}); install the package of the model's layers, or "
            "train the run again"
        ) from error
    return model


def untrained_model(store: Store, folder: str, seed: int) -> keras.Model:
    """Return a run's model with the random weights of its seed; initial weights from a file are not loaded.

    Raises:
        StoreError: see :func:`network_of`.
        ArtifactError: see :func:`network_of`.
    """
    trained = network_of(store, folder)
    return trainable_model(trained, trained.name, None, seed)
