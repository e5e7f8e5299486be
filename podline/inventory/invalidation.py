"""Invalidates a stage: deletes its completion record. ``podline run --start-from STAGE``."""

from __future__ import annotations

from podline.datasets.fingerprint import memory_of
from podline.documents.completion import completion_name
from podline.stages.specs import ConvertSpec, RunSpec, Spec, TrainSpec, ValidateSpec
from podline.stages.table import CONVERT, EVALUATE, REPORT, TRAIN, VALIDATE, stage_of
from podline.store.opening import open_store

IN_ORDER = tuple(stage.name for stage in (CONVERT, VALIDATE, TRAIN, EVALUATE, REPORT))
"""The stages from which a flow can be told to start, in order. A promotion is none of them: what was decided about the
same figures stands."""


def forget(spec: Spec) -> None:
    """Has a stage run again, though it may be done, when it is asked for the next time.

    What it wrote stays until it is written anew, so others may go on using it: a data set's shards are compared with
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
    folder = _folder(spec)
    # First, so that whatever happens next the stage does not look done.
    store.delete(completion_name(folder, stage_of(spec).name))
    if isinstance(spec, TrainSpec):
        for part in ("checkpoints", "tensorboard"):
            for name in store.list(f"{folder}/{part}"):
                store.delete(name)


def _folder(spec: Spec) -> str:
    """Where a stage's completion record lies."""
    if isinstance(spec, RunSpec):
        return spec.verdict_folder
    assert isinstance(spec, TrainSpec | ValidateSpec)  # noqa: S101 (there are no others in this order)
    return spec.folder
