"""Checkpoints: all variables and the step as arrays by name, published whole.

A checkpoint is two files in ``runs/<run>/checkpoints``: ``step-00000500.npz`` with the arrays, and, published after it,
``step-00000500.json`` (:class:`Checkpoint`) with its size and checksum. Where the second is, the first was whole.

A start looks for where to go on in this order (:func:`restore_newest`); what it finds, and why it passes something
over, goes to the log and to ``events.jsonl``:

1. The newest checkpoint whose JSON can be read, that belongs to the same spec, whose file has the size and the sha256
   that the JSON says, whose ``metrics.jsonl`` still begins as it did then, and whose arrays fit the model: training
   goes on from its step. The checkpoint that annealing or an early stop may go back to must be whole as well.
2. A checkpoint that fails any of this is passed over by name, with the reason, and the one before it is tried.
3. No checkpoint is left: training begins at step 0; with fresh weights, or, where the recipe says ``further``, with
   what that run ended with.

Those that were passed over are deleted: the run comes by their steps again. So are the files of a save that was broken
off (an array file without its JSON). Nothing here needs TensorFlow.
"""

from __future__ import annotations

import contextlib
import time
import zipfile
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from pydantic import ValidationError

from podline.arrays import Array, Arrays
from podline.documents.metrics_log import LogMark, MetricsLog
from podline.errors import ArtifactError, StoreError
from podline.frozen import Frozen
from podline.store import digests
from podline.store.contract import Store, explained

KEPT = 3


class TimeSpent(Frozen):
    """Seconds over all starts of a run: in all, in training steps, and of the latter waiting for input."""

    wall: float = 0.0
    training: float = 0.0
    waiting: float = 0.0


class Checkpoint(Frozen):
    """The description of an array file.

    Attributes:
        step: how many steps the run had done.
        bytes: size of the array file.
        sha256: its checksum.
        spec_digest: of the spec that the run belongs to.
        metrics: ``metrics.jsonl`` as it was.
        clock: what the run had taken.
        accepted: the step whose checkpoint annealing or an early stop may go back to, or that of the best evaluation,
            where that is to be kept; it is kept as long as this one.
        time: Unix time at which it was written.
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
    """Publish arrays as an ``.npz`` file, whose bytes depend on the arrays, their names and their order alone.

    Returns:
        The file's size and sha256.

    Raises:
        StoreError: it cannot be written.
    """
    with store.workspace("arrays") as folder:
        temporary = folder / "arrays.npz"
        with explained("write", store.where(name)):
            np.savez(temporary, allow_pickle=False, **arrays)
        size, sha256 = temporary.stat().st_size, digests.of_file(temporary)
        store.publish_file(temporary, name, replace=True)
    return size, sha256


def read_arrays(store: Store, name: str, sha256: str) -> dict[str, Array]:
    """Return the arrays of an ``.npz`` file.

    Raises:
        StoreError: it cannot be read.
        ArtifactError: it has another checksum, or cannot be understood.
    """
    path = store.local(name)
    with explained("read", path):
        found = digests.of_file(path)
        if found != sha256:
            raise ArtifactError(f"{path} has sha256 {found[:12]}… vs {sha256[:12]}… when it was written")
        try:
            with np.load(path, allow_pickle=False) as file:
                return {key: file[key] for key in file.files}
        except (ValueError, zipfile.BadZipFile) as error:
            raise ArtifactError(f"{path} is not a file of arrays ({error})") from error


class CheckpointCost(NamedTuple):
    """The cost of a checkpoint: seconds to write, bytes on the disk."""

    seconds: float
    bytes: int


class CheckpointFolder:
    """The checkpoints of one run."""

    def __init__(
        self, store: Store, run_folder: str, spec_digest: str, kept: int = KEPT, lasting: Collection[int] = ()
    ) -> None:
        """Open the checkpoints in a run's folder.

        Args:
            store: the store.
            run_folder: the run's.
            spec_digest: of the spec that the run belongs to.
            kept: how many of the newest a save leaves.
            lasting: steps whose checkpoints are never pruned.
        """
        self._store, self._spec_digest, self._kept, self._lasting = store, spec_digest, kept, lasting
        self.folder = f"{run_folder}/checkpoints"

    def save(self, step: int, arrays: Arrays, metrics: LogMark, clock: TimeSpent, accepted: int | None = None) -> None:
        """Publish a checkpoint; delete older ones, except the newest and those that they refer to."""
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
            StoreError: they cannot be written or read.
            ArtifactError: what is read is not what was written.
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
            with contextlib.suppress(OSError):  # another process wrote there meanwhile
                for folder in made:
                    folder.rmdir()
        for key, array in arrays.items():
            if back[key].tobytes() != np.asarray(array).tobytes():
                raise ArtifactError(
                    f"{self._store.where(name)}: {key} was read back with other values than were written"
                )
        return cost

    def steps(self) -> list[int]:
        """Return the steps that have checkpoints, complete or not, the newest first."""
        names = [name.rsplit("/", 1)[1] for name in self._store.list(self.folder)]
        stems = [name.removeprefix("step-").removesuffix(".json") for name in names if name.endswith(".json")]
        return sorted((int(stem) for stem in stems if stem.isdecimal()), reverse=True)

    def describe(self, step: int) -> Checkpoint:
        """Return the description of a step's checkpoint.

        Raises:
            StoreError: it cannot be read.
            ArtifactError: it is no checkpoint, or one of another spec, or its array file is not what it was.
        """
        path = self._store.where(self._json(step))
        try:
            checkpoint = Checkpoint.model_validate(self._store.read_json(self._json(step)))
        except ValidationError as error:
            raise ArtifactError(f"{path} does not describe a checkpoint ({error.error_count()} problems)") from error
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
            StoreError: they cannot be read.
            ArtifactError: they are not what was written.
        """
        return read_arrays(self._store, self._npz(checkpoint.step), checkpoint.sha256)

    def prune(self, keep: int) -> None:
        """Delete interrupted saves and checkpoints, but keep permanent ones, the newest ``keep``, their references."""
        newest = self.steps()[:keep]
        kept = {*newest, *map(self._accepted_by, newest), *self._lasting}
        self._delete([step for step in self.steps() if step not in kept])
        described = {self._npz(step) for step in self.steps()}
        for name in self._store.list(self.folder):
            if name.endswith(".npz") and name not in described:
                self._store.delete(name)

    def _accepted_by(self, step: int) -> int | None:
        try:
            return self.describe(step).accepted
        except (ArtifactError, StoreError):
            return None

    def delete_after(self, step: int) -> None:
        """Delete the checkpoints of later steps, and interrupted saves."""
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
    """Goes on from the newest checkpoint that is whole; see the numbered cases above.

    Args:
        folder: the checkpoints.
        log: ``metrics.jsonl``; it is cut back to what it held then, or to nothing.
        restore: sets the model's variables, all or none; raises ArtifactError if they do not fit.
        passed_over: told of the step of each checkpoint that cannot be used, and why.

    Returns:
        The checkpoint, or None: training begins at step 0.
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
        log.cut(checkpoint.metrics)
        folder.delete_after(step)
        return checkpoint
    log.cut()
    folder.delete_after(-1)
    return None
