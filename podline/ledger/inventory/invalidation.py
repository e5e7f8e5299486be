"""Invalidates a stage, for ``podline run --start-from STAGE``: deletes its completion record, or source fingerprint."""

from __future__ import annotations

import contextlib
import shutil

from podline.base.errors import OtherWriterError
from podline.data.versions.fingerprint import effective, memory_of
from podline.documents import champions
from podline.documents.completion import completion_name
from podline.settings.machine import load
from podline.stages.base import Spec
from podline.stages.specs import ConvertSpec, TrainSpec
from podline.stages.table import stage_of
from podline.store.contract import Store, explained
from podline.store.folder import mirror_of
from podline.store.one_writer import writing
from podline.store.opening import open_store

# In lease durations; a lease that is not renewed expires after one.
_PATIENCE = 1.5


def forget(spec: Spec) -> None:
    """Delete the completion record of a stage, or a conversion's stored fingerprint; the next call repeats the work.

    The stage's files stay usable until the next call rewrites them: shards that match the new plan are reused, and a
    model is replaced at the end of the new training. A training's checkpoints and TensorBoard curves are deleted, so
    that the training starts from step 0.

    Args:
        spec: the next spec of the stage.

    Raises:
        SourceError: the source of a conversion does not exist.
        StoreError: the store cannot be written, or has no marker.
        SettingsError: the run is or was a champion.
        OtherWriterError: another process is running the stage.
    """
    store = open_store(spec.root)
    store.require_marker()
    if isinstance(spec, ConvertSpec):
        memory_of(effective(spec, store), store).forget()
        return
    if isinstance(spec, TrainSpec):
        champions.require_never_champion(store, spec.recipe.name, spec.run)
    with writing(store, spec.record_folder, "delete results", _require_idle):
        # The completion record is deleted first, so that the stage never looks finished without its files.
        store.delete(completion_name(spec.record_folder, stage_of(spec).name))
        if isinstance(spec, TrainSpec):
            _forget_training(store, spec)


def _forget_training(store: Store, spec: TrainSpec) -> None:
    near = mirror_of(store).local(spec.folder)  # a training resumes from the newer of both copies
    with explained("delete", near), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(near)
    for part in ("checkpoints", "tensorboard"):
        for found in store.listing(f"{spec.folder}/{part}"):
            store.delete(found.name, found.version)


def _require_idle(holder: str, seconds: float) -> None:
    """Raise an error if another process holds the folder's lease for longer than a dead process could.

    Args:
        holder: description of the other process.
        seconds: how long this process has waited for the lease.

    Raises:
        OtherWriterError: the other process still renews its lease, so it is running.
    """
    if seconds > _PATIENCE * load().store.lease:
        raise OtherWriterError(f"the results cannot be deleted while {holder} writes them; end it, or wait for it")
