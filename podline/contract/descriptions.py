"""Reads the description of a trained run's model: layers and cost."""

from __future__ import annotations

from podline.base.errors import ArtifactError
from podline.documents.completion import read_artifact
from podline.documents.model_description import DESCRIPTION, ModelDescription
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


def describe_run(store: Store, training: TrainSpec) -> ModelDescription:
    """Return the description of a run's model.

    Raises:
        StoreError: the file cannot be read.
        ArtifactError: the file has changed.
    """
    name = f"{training.folder}/{DESCRIPTION}"
    try:
        return ModelDescription.model_validate_json(read_artifact(store, training.folder, "train", name))
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} is not a model description ({error}); train the run again") from error
