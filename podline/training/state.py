"""The state of a run: every variable that training changes, by name."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from podline.arrays import Array, Arrays, Tensor
from podline.errors import ArtifactError
from podline.recipes.settings import OptimizerSettings
from podline.training.optimizers import build_optimizer

STEPS = "steps"
"""The name, in a snapshot, of the number of steps that the state has seen."""


class TrainingState:
    """A model, its optimizer and, if there is one, the exponential moving average of the model.

    The average is a second model, whose variables follow the first one's after every step. Both the weights and the
    moving statistics of batch norm are averaged, so that the statistics fit the weights (Tan, Le: "EfficientNet", ICML
    2019, does the same). The states of random generators are not averaged.

    Attributes:
        model: the trained model.
        optimizer: an optimizer built for the model.
        average: the averaged model that is evaluated instead, or None.
        steps_before: number of steps that the state had seen when the run began.
        seen: number of steps that the state has seen now.
    """

    def __init__(
        self, model: keras.Model, settings: OptimizerSettings, average_decay: float, steps_before: int = 0
    ) -> None:
        self.steps_before = self.seen = steps_before
        self.model, self.average_decay = model, average_decay
        # All variables, trainable or not, so that layers can become trainable later.
        self._trained = model.trainable_variables
        self._settings, self.optimizer = settings, self._built(settings)
        self.average: keras.Model | None = None
        if average_decay:
            self.average = keras.models.clone_model(model)
            self.average.set_weights(model.get_weights())

    def _built(self, settings: OptimizerSettings) -> keras.optimizers.Optimizer:
        optimizer = build_optimizer(settings)
        optimizer.build(self._trained)
        return optimizer

    def use_optimizer(self, settings: OptimizerSettings) -> None:
        """Switch to the optimizer of some settings; call this in the strategy's scope.

        An optimizer with the same variables takes over their values; any other optimizer begins fresh.
        """
        if settings == self._settings:
            return
        before = self._optimizer_variables()
        self._settings, self.optimizer = settings, self._built(settings)
        now = self._optimizer_variables()
        if now.keys() == before.keys():
            for name, variable in now.items():
                variable.assign(before[name].numpy())

    def _optimizer_variables(self) -> dict[str, Any]:
        """Return the optimizer's variables by path, without the prefix that Keras numbers."""
        kind = type(self.optimizer).__name__
        return {f"{kind}/{variable.path.partition('/')[2]}": variable for variable in self.optimizer.variables}

    @property
    def evaluated(self) -> keras.Model:
        """The model that is evaluated and exported: the average if there is one."""
        return self.average or self.model

    @property
    def step(self) -> int:
        """The number of finished steps of the run."""
        return self.seen - self.steps_before

    def average_share(self, seen: int) -> float:
        """Return the share of their difference by which the average moves towards the model in a step.

        Early in a run the share is 1 - (1 + step) / (10 + step), as in ``tf.train.ExponentialMovingAverage``, so that
        the average forgets the initial weights.
        """
        return 1 - min(self.average_decay, (1 + seen) / (10 + seen))

    def follow(self, share: Tensor) -> None:
        """Move the average towards the model, as a part of a step on the device."""
        if self.average is not None:
            for average, value in zip(averaged(self.average), averaged(self.model), strict=True):
                average.assign_add((value - average) * share)

    def snapshot(self) -> dict[str, Array]:
        """Copy all variables and the step, by name."""
        arrays = {name: variable.numpy() for name, variable in self._variables().items()}
        return arrays | {STEPS: np.array(self.seen)}

    def restore(self, arrays: Arrays) -> None:
        """Set all variables and the step to a snapshot.

        Raises:
            ArtifactError: the snapshot has other names or shapes.
        """
        variables = self._variables()
        differing = sorted({*variables, STEPS} ^ arrays.keys())
        if differing:
            raise ArtifactError(
                f"it holds {len(arrays)} arrays vs {len(variables) + 1} of this model; first difference: {differing[0]}"
            )
        for name, variable in variables.items():
            array = arrays[name]
            found, needed = (array.dtype.name, array.shape), (variable.dtype, tuple(variable.shape))
            if found != needed:
                raise ArtifactError(f"its {name} is {found} vs {needed} in this model")
        for name, variable in variables.items():
            variable.assign(arrays[name])
        self.seen = int(arrays[STEPS])

    def go_back(self, arrays: Arrays) -> None:
        """Restore an earlier snapshot, but keep the number of steps done, so that the order of batches goes on.

        Raises:
            ArtifactError: the snapshot has other names or shapes.
        """
        self.restore({**arrays, STEPS: np.array(self.seen)})

    def _variables(self) -> dict[str, Any]:
        groups = {"model": self.model.variables, "average": averaged(self.average) if self.average else []}
        named = [(f"{group}/{variable.path}", variable) for group, members in groups.items() for variable in members]
        named += [(f"optimizer/{name}", variable) for name, variable in self._optimizer_variables().items()]
        variables = dict(named)
        if len(variables) != len(named):
            names = [name for name, _ in named]
            twice = next(name for name in names if names.count(name) > 1)
            raise ArtifactError(f"two variables of the model are called {twice}; give its layers names of their own")
        return variables


def averaged(model: keras.Model) -> list[Tensor]:
    """Return the variables that an average covers: all floating-point ones, so no generator states."""
    return [variable for variable in model.variables if np.issubdtype(np.dtype(variable.dtype), np.floating)]


def weights(model: keras.Model) -> dict[str, Array]:
    """Return a model's weights and moving statistics by the names of its layers, without generators."""
    return {variable.path: variable.numpy() for variable in averaged(model)}


def set_weights(model: keras.Model, arrays: Arrays) -> None:
    """Load the arrays that :func:`weights` returned into a model.

    Raises:
        ArtifactError: the weights belong to another model.
    """
    variables = {variable.path: variable for variable in averaged(model)}
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    found = {name: array.shape for name, array in arrays.items()}
    if shapes != found:
        name, *_ = sorted(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name))
        raise ArtifactError(f"weights of another model: {name} is {found.get(name)} vs {shapes.get(name)} in the model")
    for name, variable in variables.items():
        variable.assign(arrays[name])
