"""Saves and restores checkpoints: all variables and the step, as named arrays.

A checkpoint is two files in ``runs/<run>/checkpoints``: ``step-00000500.npz`` with the arrays, and, published after it,
``step-00000500.json`` (:class:`Checkpoint`) with its size and checksum. The JSON is published last, so its presence
shows that the array file was complete.

A start looks for a checkpoint to resume from in this order (:func:`restore_newest`). The log and ``events.jsonl``
record which checkpoint was restored, and why others were skipped:

1. The newest checkpoint that passes all checks: its JSON is valid, it belongs to the same spec, its file has the size
   and sha256 that the JSON records, ``metrics.jsonl`` still begins with the same bytes, and its arrays fit the model.
   The checkpoint that annealing or an early stop may restore must be complete as well.
2. A checkpoint that fails a check is skipped, the reason is recorded, and the next older one is tried.
3. If no checkpoint is left, training begins at step 0: with the final state of another run if the recipe sets
   ``further``, with weights from a file if it sets ``init``, else with fresh weights.

Skipped checkpoints are deleted, because the run will repeat their steps. So are the files of interrupted saves (an
array file without its JSON). This module does not need TensorFlow.
"""

from __future__ import annotations

import contextlib
import time
import zipfile
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from podline.base.arrays import Array, Arrays
from podline.base.errors import ArtifactError, StoreError
from podline.base.frozen import Frozen
from podline.documents.log_writers import LogMark, MetricsLog
from podline.documents.reading import read_model
from podline.store import digests
from podline.store.contract import Store, explained
from podline.store.digests import REMEDY

KEPT = 3
_BITS_OF = ":bits of "


class TimeSpent(Frozen):
    """The seconds that a run took over all its starts.

    Attributes:
        wall: total time.
        training: time of the training steps.
        waiting: the part of ``training`` in which the device waited for input.
    """

    wall: float = 0.0
    training: float = 0.0
    waiting: float = 0.0


class Checkpoint(Frozen):
    """The description of a checkpoint's array file, stored as JSON.

    Attributes:
        step: number of steps that the run had taken.
        bytes: size of the array file.
        sha256: checksum of the array file.
        spec_digest: digest of the run's spec.
        metrics: length and checksum of ``metrics.jsonl`` at the save.
        clock: time that the run had taken.
        accepted: step of the checkpoint, this or an earlier one, that is kept as long as this one, because annealing or
            early stopping may restore it; None without such a checkpoint.
        time: Unix time of the save.
    """

    step: int
    bytes: int
    sha256: str
    spec_digest: str
    metrics: LogMark
    clock: TimeSpent
    accepted: int | None = None
    time: float


def write_arrays(store: Store, name: str, arrays: Arrays) -> tuple[int, str]:
    """Publish arrays as an ``.npz`` file; equal arrays, names and order give equal bytes.

    Returns:
        The file's size and sha256.

    Raises:
        StoreError: the file cannot be written.
    """
    with store.workspace("arrays") as folder:
        temporary = folder / "arrays.npz"
        with explained("write", store.where(name)):
            np.savez(temporary, allow_pickle=False, **dict(_storable(name, array) for name, array in arrays.items()))
        size, sha256 = temporary.stat().st_size, digests.of_file(temporary)
        store.publish_file(temporary, name, replace=True)
    return size, sha256


def read_arrays(store: Store, name: str, sha256: str) -> dict[str, Array]:
    """Return the arrays of an ``.npz`` file.

    Raises:
        StoreError: the file cannot be read.
        ArtifactError: the file's checksum is not ``sha256``, or it is no ``.npz`` file of arrays.
    """
    path = store.local(name)
    with explained("read", path):
        found = digests.of_file(path)
        if found != sha256:
            raise ArtifactError(f"{path} has sha256 {found[:12]}… vs {sha256[:12]}… when it was written")
        try:
            with np.load(path, allow_pickle=False) as file:
                return dict(_stored(key, file[key]) for key in file.files)
        except (ValueError, zipfile.BadZipFile) as error:
            raise ArtifactError(f"{path} is not an .npz file of arrays ({error})") from error


def _storable(name: str, array: Array) -> tuple[str, Array]:
    """Return the name and array to store; a dtype that NumPy lacks, such as bfloat16, is stored as its bits."""
    array = np.asarray(array)
    if array.dtype.kind != "V":
        return name, array
    return f"{name}{_BITS_OF}{array.dtype.name}", array.view(f"u{array.dtype.itemsize}")


def _stored(name: str, array: Array) -> tuple[str, Array]:
    name, _, dtype = name.partition(_BITS_OF)
    return name, array.view(np.dtype(dtype)) if dtype else array


class CheckpointCost(NamedTuple):
    """The seconds to write a checkpoint and the bytes that it takes on disk."""

    seconds: float
    bytes: int


class CheckpointFolder:
    """The folder with the checkpoints of one run."""

    def __init__(
        self, store: Store, run_folder: str, spec_digest: str, kept: int = KEPT, lasting: Collection[int] = ()
    ) -> None:
        """Open the checkpoints in a run's folder.

        Args:
            store: the store that holds the run.
            run_folder: the run's folder in the store.
            spec_digest: digest of the run's spec.
            kept: number of newest checkpoints that a save keeps.
            lasting: steps whose checkpoints are never pruned.
        """
        self._store, self._spec_digest, self._kept, self._lasting = store, spec_digest, kept, lasting
        self.folder = f"{run_folder}/checkpoints"

    def save(self, step: int, arrays: Arrays, metrics: LogMark, clock: TimeSpent, accepted: int | None = None) -> None:
        """Publish a checkpoint, then delete older checkpoints; see :meth:`prune`."""
        self._store.delete(self._json(step))
        size, sha256 = write_arrays(self._store, self._npz(step), arrays)
        checkpoint = Checkpoint(
            step=step,
            bytes=size,
            sha256=sha256,
            spec_digest=self._spec_digest,
            metrics=metrics,
            clock=clock,
            accepted=accepted,
            time=time.time(),
        )
        self._store.publish_json(self._json(step), checkpoint.model_dump(mode="json"), replace=True)
        self.prune(self._kept)

    def rehearse(self, arrays: Arrays) -> CheckpointCost:
        """Write arrays as a checkpoint, read them back, and delete them.

        Raises:
            StoreError: the arrays cannot be written or read.
            ArtifactError: the arrays read differ from the arrays written.
        """
        name, started = f"{self.folder}/preflight.npz", time.monotonic()
        above = (self._store.local(str(folder)) for folder in (self.folder, *PurePosixPath(self.folder).parents[:-1]))
        made = [folder for folder in above if not folder.is_dir()]
        size, sha256 = write_arrays(self._store, name, arrays)
        cost = CheckpointCost(time.monotonic() - started, size)
        try:
            back = read_arrays(self._store, name, sha256)
        finally:
            self._store.delete(name)
            with contextlib.suppress(OSError):  # another process has written to the folder
                for folder in made:
                    folder.rmdir()
        for key, array in arrays.items():
            if back[key].tobytes() != np.asarray(array).tobytes():
                raise ArtifactError(
                    f"{self._store.where(name)}: array {key} was read back with other values than were written; "
                    "check the disk or the bucket"
                )
        return cost

    def steps(self) -> list[int]:
        """Return the steps whose checkpoints have a description, even if their arrays are missing; newest first."""
        names = [name.rsplit("/", 1)[1] for name in self._store.list(self.folder)]
        stems = [name.removeprefix("step-").removesuffix(".json") for name in names if name.endswith(".json")]
        return sorted((int(stem) for stem in stems if stem.isdecimal()), reverse=True)

    def describe(self, step: int) -> Checkpoint:
        """Return the description of a step's checkpoint.

        Raises:
            StoreError: the description cannot be read.
            ArtifactError: the description is invalid, belongs to another spec, or the array file has changed.
        """
        path = self._store.where(self._json(step))
        checkpoint = read_model(self._store, self._json(step), Checkpoint, "a checkpoint's description", REMEDY)
        if checkpoint.spec_digest != self._spec_digest:
            raise ArtifactError(
                f"{path} belongs to the spec {checkpoint.spec_digest[:12]}, expected {self._spec_digest[:12]}"
            )
        where, arrays = self._store.where(self._npz(step)), self._store.find(self._npz(step))
        if arrays is None:
            raise ArtifactError(f"{where} is gone")
        if arrays.bytes != checkpoint.bytes:
            raise ArtifactError(f"{where} has {arrays.bytes} bytes vs {checkpoint.bytes} when it was written")
        return checkpoint

    def arrays(self, checkpoint: Checkpoint) -> dict[str, Array]:
        """Return the arrays of a checkpoint.

        Raises:
            StoreError: the array file cannot be read.
            ArtifactError: the array file has changed.
        """
        return read_arrays(self._store, self._npz(checkpoint.step), checkpoint.sha256)

    def prune(self, keep: int) -> None:
        """Delete interrupted saves and old checkpoints.

        The ``keep`` newest checkpoints stay, and so do their ``accepted`` checkpoints and the ``lasting`` ones.
        """
        newest = self.steps()[:keep]
        kept = {*newest, *map(self._accepted_by, newest), *self._lasting}
        self._delete([step for step in self.steps() if step not in kept])
        described = {self._npz(step) for step in self.steps()}
        for name in self._store.list(self.folder):
            if name.startswith(f"{self.folder}/step-") and name.endswith(".npz") and name not in described:
                self._store.delete(name)

    def _accepted_by(self, step: int) -> int | None:
        try:
            return self.describe(step).accepted
        except (ArtifactError, StoreError):
            return None

    def delete_after(self, step: int) -> None:
        """Delete the checkpoints of steps after ``step``, and interrupted saves."""
        self._delete([later for later in self.steps() if later > step])
        self.prune(self._kept)

    def _delete(self, steps: list[int]) -> None:
        for step in steps:
            self._store.delete(self._json(step))
            self._store.delete(self._npz(step))

    def _npz(self, step: int) -> str:
        return f"{self.folder}/step-{step:08d}.npz"

    def _json(self, step: int) -> str:
        return f"{self.folder}/step-{step:08d}.json"


def restore_newest(
    folder: CheckpointFolder,
    log: MetricsLog,
    restore: Callable[[Arrays], None],
    passed_over: Callable[[int, str], None],
) -> Checkpoint | None:
    """Restore the newest valid checkpoint; the module's docstring lists the cases.

    Args:
        folder: the run's checkpoints.
        log: ``metrics.jsonl``; it is truncated to its length at the checkpoint, or emptied.
        restore: sets all variables of the model, or raises ArtifactError if the arrays do not fit.
        passed_over: is called with the step of each skipped checkpoint and the reason.

    Returns:
        The restored checkpoint, or None if training begins at step 0.
    """
    for step in folder.steps():
        try:
            checkpoint = folder.describe(step)
            log.require(checkpoint.metrics)
            if checkpoint.accepted not in (None, step):
                folder.arrays(folder.describe(checkpoint.accepted))
            restore(folder.arrays(checkpoint))
        except (ArtifactError, StoreError) as error:
            passed_over(step, str(error))
            continue
        log.cut(checked=True)
        folder.delete_after(step)
        return checkpoint
    log.cut(checked=False)
    folder.delete_after(-1)
    return None
