"""Invalidates a stage: deletes its completion record. ``podline run --start-from STAGE`` uses it."""

from __future__ import annotations

import contextlib
import shutil

from podline.datasets.fingerprint import effective, memory_of
from podline.documents.completion import completion_name
from podline.errors import StoreUnavailableError
from podline.stages.specs import ConvertSpec, Spec, TrainSpec
from podline.stages.table import stage_of
from podline.store.contract import Store, explained
from podline.store.folder import mirror_of
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
        StoreUnavailableError: a living process on this machine uses the run.
    """
    store = open_store(spec.root)
    require_marker(store)
    if isinstance(spec, ConvertSpec):
        memory_of(effective(spec, store), store).forget()
        return
    if not isinstance(spec, TrainSpec):
        store.delete(completion_name(spec.record_folder, stage_of(spec).name))
        return
    with store.alone(spec.folder) as free:
        if not free:
            raise StoreUnavailableError(
                f"{store.where(spec.folder)}: a living process uses the run; wait for its end, or end it"
            )
        _forget_training(store, spec)


def _forget_training(store: Store, spec: TrainSpec) -> None:
    # This comes first, so that after any failure the stage does not look finished.
    store.delete(completion_name(spec.folder, stage_of(spec).name))
    near = mirror_of(store).local(spec.folder)  # a training goes on from the newer side
    with explained("delete", near), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(near)
    for part in ("checkpoints", "tensorboard"):
        for found in store.listing(f"{spec.folder}/{part}"):
            store.delete(found.name, found.version)
