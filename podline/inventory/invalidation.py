"""Invalidates a stage: deletes its completion record. ``podline run --start-from STAGE``."""

from __future__ import annotations

from podline.datasets.fingerprint import memory_of
from podline.documents.completion import completion_name
from podline.stages.specs import ConvertSpec, Spec, TrainSpec
from podline.stages.table import stage_of
from podline.store.opening import open_store


def forget(spec: Spec) -> None:
    """Delete the completion record of a stage, so that its next call does the work again.

    What it wrote stays until it is written again, so others may go on using it: a data set's shards are compared with
    their plan, and a model is replaced when the new one is trained. Of a training, the checkpoints and TensorBoard's
    curves are deleted: it is to begin from its beginning.

    Args:
        spec: what the stage will be given.

    Raises:
        SourceError: the source of a conversion does not exist.
        StoreError: the store cannot be written.
    """
    store = open_store(spec.root)
    if isinstance(spec, ConvertSpec):
        memory_of(spec, store).forget()
        return
    # First, so that whatever happens next the stage does not look done.
    store.delete(completion_name(spec.record_folder, stage_of(spec).name))
    if isinstance(spec, TrainSpec):
        for part in ("checkpoints", "tensorboard"):
            for name in store.list(f"{spec.folder}/{part}"):
                store.delete(name)
