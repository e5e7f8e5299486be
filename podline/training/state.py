"""The state of a run: all variables that training changes, in groups and in a fixed order."""

# pyright: standard
from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import keras
import numpy as np
import tensorflow as tf

from podline.base.arrays import Array, Arrays, Tensor
from podline.base.errors import ArtifactError, SettingsError
from podline.models.keras_internals import fresh_names, with_sublayers
from podline.models.layer_copies import copied
from podline.models.variables import Variables, assign, require_fit, values_of
from podline.recipes.settings import OptimizerSettings
from podline.training.optimizers import build_optimizer

STEPS = "steps"
"""The name, in a snapshot, of the number of steps that the state has seen."""


class TrainingState:
    """A model, its optimizer and, if there is one, the exponential moving average of the model.

    The average is a second model, which is updated after every step. Both the weights and the moving statistics of
    batch norm are averaged, so that the statistics fit the weights (Tan, Le: "EfficientNet", ICML 2019, does the same).
    Integer variables, such as counters, are copied. The states of random generators are not copied.

    Attributes:
        model: the trained model.
        optimizer: an optimizer built for the model.
        average: the averaged model, which is evaluated instead of ``model``, or None.
        steps_before: number of steps that the state had seen when the run began.
        total_steps_done: number of steps that the state has seen now.
    """

    def __init__(
        self, model: keras.Model, settings: OptimizerSettings, average_decay: float, steps_before: int = 0
    ) -> None:
        self.steps_before = self.total_steps_done = steps_before
        self.model, self.average_decay = model, average_decay
        # All variables that some phase may train; layers that the model itself freezes never train.
        self._trained = model.trainable_variables
        self._frozen = [layer for layer in with_sublayers(model) if not layer.trainable]
        self._settings, self.optimizer = settings, self._built(settings)
        self.average: keras.Model | None = None
        if average_decay:
            self.average = copied(model)

    def _built(self, settings: OptimizerSettings) -> keras.optimizers.Optimizer:
        with fresh_names():  # the names of the optimizer's variables contain its own name
            return build_optimizer(settings, self._trained, layers=with_sublayers(self.model))

    def use_optimizer(self, settings: OptimizerSettings) -> None:
        """Switch to the optimizer of ``settings``; call this in the strategy's scope.

        A new optimizer with the same class and variable shapes takes over the values of the old one; any other
        optimizer begins fresh.
        """
        if settings == self._settings:
            return
        before, self._settings, self.optimizer = self.optimizer, settings, self._built(settings)
        shapes = [[tuple(variable.shape) for variable in each.variables] for each in (before, self.optimizer)]
        if type(before) is type(self.optimizer) and shapes[0] == shapes[1]:
            assign(self.optimizer.variables, values_of(before.variables))

    def renew_optimizer(self) -> None:
        """Replace the optimizer by a fresh one; call this in the strategy's scope when layers begin to train.

        Adam corrects its averages of gradients by the number of steps. The correction would be wrong for variables that
        did not train in all of these steps.
        """
        self.optimizer = self._built(self._settings)

    def let_train(self, beginnings: Sequence[str]) -> None:
        """Make only the layers trainable whose names start with one of the prefixes ``beginnings``.

        In a prefix, ``*`` stands for any letters. Layers that the model itself freezes stay frozen. A batch norm that
        is not trainable normalises by its moving statistics and does not update them.

        Raises:
            SettingsError: a prefix matches no layer with weights, or no variable would be trainable.
        """
        weighted = [layer for layer in self.model.layers if layer.weights]
        for beginning in beginnings:
            if not any(_begins(layer.name, beginning) for layer in weighted):
                raise SettingsError(
                    f"trainable_layers: no layer with weights starts with {beginning!r}; "
                    f"the layers are: {', '.join(layer.name for layer in weighted)}"
                )
        for layer in self.model.layers:
            for inner in with_sublayers(layer):
                inner.trainable = any(_begins(layer.name, beginning) for beginning in beginnings)
        for layer in self._frozen:
            layer.trainable = False
        if not self.model.trainable_variables:
            raise SettingsError(
                f"trainable_layers={list(beginnings)}: no variable would train; name a layer with weights"
                f"{' that the model itself does not freeze' if self._frozen else ''}"
            )

    @property
    def evaluated(self) -> keras.Model:
        """The model that is evaluated and exported: the average if there is one."""
        return self.average or self.model

    @property
    def step(self) -> int:
        """The number of finished steps of the run."""
        return self.total_steps_done - self.steps_before

    def average_share(self, seen: int) -> float:
        """Return the share of the difference by which the average moves towards the model, after ``seen`` steps.

        Early in a run the share is 1 - (1 + seen) / (10 + seen), as in ``tf.train.ExponentialMovingAverage``, so that
        the average forgets the initial weights.
        """
        return 1 - min(self.average_decay, (1 + seen) / (10 + seen))

    def follow(self, share: Tensor) -> None:
        """Move the average towards the model by a share of the difference, as part of a step on the device."""
        if self.average is not None:
            for average, value in zip(self.average.weights, self.model.weights, strict=True):
                if tf.as_dtype(average.dtype).is_floating:
                    average.assign_add((value - average) * tf.cast(share, average.dtype))
                else:
                    average.assign(value)

    def snapshot(self) -> dict[str, Array]:
        """Return copies of all variables, and the number of steps, by label."""
        arrays = {
            f"{group}/{label}": value
            for group, variables in self._groups().items()
            for label, value in values_of(variables, self.optimizer.name).items()
        }
        return arrays | {STEPS: np.array(self.total_steps_done)}

    def restore(self, arrays: Arrays) -> None:
        """Set all variables and the number of steps to a snapshot.

        Raises:
            ArtifactError: groups, types or shapes of the snapshot differ from those of this state.
        """
        groups = self._groups()
        left = [
            name for name in arrays if name != STEPS and not name.startswith(tuple(f"{group}/" for group in groups))
        ]
        if left or STEPS not in arrays:
            raise ArtifactError(
                f"the snapshot has {left[0] if left else 'no number of steps'}, expected only "
                f"{', '.join(groups)} and {STEPS}"
            )
        parts = {group: _part(arrays, group) for group in groups}
        for group, variables in groups.items():
            require_fit(variables, parts[group])
        for group, variables in groups.items():
            assign(variables, parts[group])
        self.total_steps_done = int(arrays[STEPS])

    @property
    def variables(self) -> list[keras.Variable]:
        """All variables that a snapshot contains."""
        return [variable for variables in self._groups().values() for variable in variables]

    def _groups(self) -> dict[str, Variables]:
        """Return all variables by group; the optimizer's group contains its class, since shapes do not identify it."""
        average = {"average": self.average.weights} if self.average else {}
        optimizer = f"optimizer/{type(self.optimizer).__name__}"
        return {"model": self.model.variables, **average, optimizer: self.optimizer.variables}


def _begins(name: str, beginning: str) -> bool:
    return fnmatchcase(name, f"{beginning}*")


def _part(arrays: Arrays, group: str) -> dict[str, Array]:
    return {name: array for name, array in arrays.items() if name.startswith(f"{group}/")}
