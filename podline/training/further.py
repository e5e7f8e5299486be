"""Trains a finished run further, as a new run. Needs no TensorFlow.

The new run counts its steps and epochs from 0 and has its own duration and schedule. It takes over the state of the
finished run (weights, optimizer, averages, random generators) and its position in the data: its first epoch follows
that run's last epoch. With a constant rate, two epochs and two further ones equal four epochs, to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from podline.base.errors import ArtifactError, SettingsError
from podline.base.plurals import plural
from podline.documents.completion import completion_name, read_result
from podline.documents.reading import read_model
from podline.stages.specs import SPEC, TrainResult, TrainSpec
from podline.store.contract import Store
from podline.training.checkpoints import CheckpointFolder

if TYPE_CHECKING:  # run imports TensorFlow
    from podline.training.state import TrainingState


@dataclass(frozen=True)
class Finished:
    """A finished run.

    Attributes:
        result: the result of its training.
        checkpoints: its checkpoints; the newest one holds its final state.
    """

    result: TrainResult
    checkpoints: CheckpointFolder

    @property
    def steps(self) -> int:
        """The number of steps that the final state has seen, including those of earlier runs."""
        return self.result.steps_before + self.result.steps

    @property
    def epochs(self) -> int:
        """The number of epochs that the run began, including those of earlier runs."""
        return self.result.epochs_before + math.ceil(self.result.epochs)

    @property
    def in_words(self) -> str:
        """Describe the run: its name, the checksum of its weights, and its number of steps."""
        result = self.result
        return f"further from {result.run} (weights {result.weights_sha256[:12]}, {plural(self.steps, 'step')})"

    def restore(self, state: TrainingState) -> None:
        """Set ``state`` to the final state of the finished run.

        Raises:
            SettingsError: the final state does not fit the model, the optimizer or the average of ``state``.
            ArtifactError: its last checkpoint is missing or damaged.
        """
        newest = next(iter(self.checkpoints.steps()), None)
        if newest is None or newest != self.result.steps:
            found = "that run has no checkpoint" if newest is None else f"its newest checkpoint is of step {newest}"
            raise ArtifactError(
                f"further={self.result.run}: {found}, expected one of its last step, {self.result.steps}; train that "
                "run again"
            )
        arrays = self.checkpoints.arrays(self.checkpoints.describe(newest))
        try:
            state.restore(arrays)
        except ArtifactError as error:
            raise SettingsError(
                f"further={self.result.run}: that run's state does not fit this recipe: {error}; give the recipe the "
                "model, the optimizer and the ema_decay of that run"
            ) from error


def finished(store: Store, run: str) -> Finished:
    """Return a finished run of a store.

    Raises:
        SettingsError: there is no run of this name, or it is unfinished.
        ArtifactError: a file of the run cannot be read.
    """
    folder = f"runs/{run}"
    record = completion_name(folder, "train")
    if not store.exists(record):
        raise SettingsError(
            f"further={run}: {store.uri} has no finished training of that name; `podline runs list` shows its runs"
        )
    spec = read_model(store, f"{folder}/{SPEC}", TrainSpec, "a training spec", f"train {run} again")
    result = read_result(store, folder, "train", TrainResult)
    return Finished(result, CheckpointFolder(store, folder, spec.digest()))
