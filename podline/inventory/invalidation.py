"""Invalidates a stage: deletes its completion record. ``podline run --start-from STAGE`` uses it."""

from __future__ import annotations

from podline.datasets.fingerprint import effective, memory_of
from podline.documents.completion import completion_name
from podline.stages.specs import ConvertSpec, Spec, TrainSpec
from podline.stages.table import stage_of
from podline.store.marker import require_marker
from podline.store.opening import open_store


def forget(spec: Spec) -> None:
    """Delete the completion record of a stage, so that its next call repeats the work.

    The stage's files stay until they are rewritten, so others may use them: a data set's shards are compared with their
    plan, and a model is replaced after the new training. A training's checkpoints and TensorBoard curves are deleted,
    so that it starts from the beginning.

    Args:
        spec: the next spec of the stage.

    Raises:
        SourceError: the source of a conversion does not exist.
        StoreError: the store cannot be written, or has no marker.
    """
    store = open_store(spec.root)
    require_marker(store)
    if isinstance(spec, ConvertSpec):
        memory_of(effective(spec, store), store).forget()
        return
    # This comes first, so that after any failure the stage does not look finished.
    store.delete(completion_name(spec.record_folder, stage_of(spec).name))
    if isinstance(spec, TrainSpec):
        for part in ("checkpoints", "tensorboard"):
            for name in store.list(f"{spec.folder}/{part}"):
                store.delete(name)
