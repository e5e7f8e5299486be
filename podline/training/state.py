"""The state of a run: every variable that training changes, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.errors import ArtifactError

Arrays = dict[str, npt.NDArray[Any]]


class TrainingState:
    """A model, its optimizer and, if there is one, the exponential moving average of the model.

    The average is a second model, whose variables follow the first one's after every step: the weights, and the moving
    statistics of batch norm as well, so that the statistics belong to the weights that they are used with (Tan, Le:
    "EfficientNet", ICML 2019, does the same). What draws random numbers is not averaged.

    Attributes:
        model: what is trained.
        optimizer: built for it.
        average: what is evaluated instead, or None.
        steps_before: how many steps the state had seen when the run began; the optimizer counts them as well.
    """

    def __init__(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, average_decay: float, steps_before: int = 0
    ) -> None:
        self.steps_before = steps_before
        self.model, self.optimizer, self.average_decay = model, optimizer, average_decay
        optimizer.build(model.trainable_variables)
        self.average: keras.Model | None = None
        if average_decay:
            self.average = keras.models.clone_model(model)
            self.average.set_weights(model.get_weights())

    @property
    def evaluated(self) -> keras.Model:
        """The model that is evaluated and kept: the average if there is one."""
        return self.average or self.model

    @property
    def step(self) -> int:
        """How many steps of the run are done."""
        return int(np.asarray(self.optimizer.iterations)) - self.steps_before

    def follow(self) -> None:
        """Moves the average towards the model; part of a step on the device.

        Early in a run the average moves faster, by (1 + step) / (10 + step), as ``tf.train.ExponentialMovingAverage``
        does: it forgets the weights that training began with.
        """
        if self.average is None:
            return
        step = tf.cast(self.optimizer.iterations, tf.float32)
        rate = 1 - tf.minimum(self.average_decay, (1 + step) / (10 + step))
        for average, value in zip(averaged(self.average), averaged(self.model), strict=True):
            average.assign_add((value - average) * rate)

    def snapshot(self) -> Arrays:
        """A copy of everything, by name."""
        return {name: variable.numpy() for name, variable in self._variables().items()}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Sets everything to a snapshot.

        Raises:
            ArtifactError: it is a snapshot of something else.
        """
        variables = self._variables()
        differing = sorted(variables.keys() ^ arrays.keys())
        if differing:
            raise ArtifactError(
                f"it holds {len(arrays)} arrays vs {len(variables)} variables of this model; first difference: "
                f"{differing[0]}"
            )
        for name, variable in variables.items():
            array = arrays[name]
            found, needed = (array.dtype.name, array.shape), (variable.dtype, tuple(variable.shape))
            if found != needed:
                raise ArtifactError(f"its {name} is {found} vs {needed} in this model")
        for name, variable in variables.items():
            variable.assign(arrays[name])

    def go_back(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Sets everything to an earlier snapshot but the number of steps done: time goes on, and so does the order.

        Raises:
            ArtifactError: it is a snapshot of something else.
        """
        step = self.step
        self.restore(arrays)
        iterations: Any = self.optimizer.iterations
        iterations.assign(self.steps_before + step)

    def _variables(self) -> dict[str, Any]:
        groups = {"model": self.model.variables, "optimizer": self.optimizer.variables}
        if self.average is not None:
            groups["average"] = averaged(self.average)
        named = [(f"{group}/{variable.path}", variable) for group, members in groups.items() for variable in members]
        variables = dict(named)
        if len(variables) != len(named):
            names = [name for name, _ in named]
            twice = next(name for name in names if names.count(name) > 1)
            raise ArtifactError(f"two variables of the model are called {twice}; give its layers names of their own")
        return variables


def averaged(model: keras.Model) -> list[Any]:
    """The variables that an average is taken of: all floating-point ones, which leaves out the states of generators."""
    return [variable for variable in model.variables if np.issubdtype(np.dtype(variable.dtype), np.floating)]


def weights(model: keras.Model) -> Arrays:
    """What a trained model is: its weights and moving statistics by the names of its layers, without generators."""
    return {variable.path: variable.numpy() for variable in averaged(model)}


def set_weights(model: keras.Model, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Sets a model to what :func:`weights` gave.

    Raises:
        ArtifactError: they are another model's.
    """
    variables = {variable.path: variable for variable in averaged(model)}
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    found = {name: array.shape for name, array in arrays.items()}
    if shapes != found:
        name, *_ = sorted(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name))
        raise ArtifactError(f"weights of another model: {name} is {found.get(name)} vs {shapes.get(name)} in the model")
    for name, variable in variables.items():
        variable.assign(arrays[name])
