"""Reads the description of a trained run's model: layers and cost."""

from __future__ import annotations

from podline.documents.completion import completion_name, read_artifact, read_completion
from podline.documents.manifest import Manifest
from podline.documents.model_description import DESCRIPTION, ModelDescription
from podline.errors import ArtifactError
from podline.kinds.contract import kind_of
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


def describe_run(store: Store, training: TrainSpec, manifest: Manifest) -> ModelDescription:
    """Return the description of a run's model.

    Runs of earlier versions have no file: their model is built again and counted, which imports TensorFlow.

    Raises:
        StoreError: the file cannot be read.
        ArtifactError: the file has changed.
    """
    folder, recipe = training.folder, training.recipe
    name = f"{folder}/{DESCRIPTION}"
    record = completion_name(folder, "train")
    written = read_completion(store, folder, "train").artifacts if store.exists(record) else ()
    if all(artifact.name != name for artifact in written):
        height, width, channels = manifest.image_shape
        classes = len(manifest.class_names)
        return kind_of(recipe).description(recipe, (height, width, channels), classes, manifest.facts)
    try:
        return ModelDescription.model_validate_json(read_artifact(store, folder, "train", name))
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} is not a model description ({error}); train the run again") from error
