"""What the model of a trained run is made of and costs, as its training wrote it."""

from __future__ import annotations

from podline import entry_points
from podline.documents.completion import completion_name, read_artifact, read_completion
from podline.documents.model_description import DESCRIPTION, ModelDescription
from podline.errors import ArtifactError
from podline.store.contract import Store


def describe_run(store: Store, folder: str) -> ModelDescription:
    """The description of a run's model. Runs of earlier versions have none: their model is built and counted.

    Raises:
        StoreError: it cannot be read.
        ArtifactError: it is not what training wrote.
    """
    name = f"{folder}/{DESCRIPTION}"
    record = completion_name(folder, "train")
    written = read_completion(store, folder, "train").artifacts if store.exists(record) else ()
    if all(artifact.name != name for artifact in written):
        # TensorFlow is needed for this alone.
        return entry_points.load("podline.models.of_run:describe_architecture")(store, folder)
    try:
        return ModelDescription.model_validate_json(read_artifact(store, folder, "train", name))
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} describes no model ({error}); train the run again") from error
