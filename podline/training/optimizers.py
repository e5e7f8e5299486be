"""The optimizers, from Keras; Adafactor is our own, because Keras's overrules the learning rate.

All of them are given gradients that are summed over the replicas already: Keras would bound the norm of each replica's
own gradient and sum what is left, which is another step than one device takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from podline import entry_points
from podline.errors import SettingsError
from podline.recipes.networks import OPTIMIZERS
from podline.recipes.settings import OptimizerSettings

# Searched for in a variable's name: whatever is not a kernel (biases, scales and offsets of norms) does not decay.
NOT_A_KERNEL = r"^(?!.*kernel)"


def build_optimizer(
    settings: OptimizerSettings, learning_rate: float | Callable[[], Any] = 0.0
) -> keras.optimizers.Optimizer:
    """The optimizer of a recipe, not yet built: call ``build(model.trainable_variables)`` in the strategy's scope.

    ``momentum`` is the momentum of ``sgd`` and ``rmsprop`` and the first beta of ``adam`` and ``adamw``; ``adafactor``
    has none. ``nesterov`` is for ``sgd``. Weight decay is decoupled for every kind: in each step a kernel loses
    ``learning rate × weight_decay`` of itself before the update (Loshchilov, Hutter: "Decoupled Weight Decay
    Regularization", ICLR 2019), so ``adam`` with decay is ``adamw``. ``clip_norm`` bounds the norm of all gradients
    together.

    Args:
        settings: the recipe's.
        learning_rate: a number, which becomes the variable ``learning_rate`` that a training loop assigns in each step;
            or a function without arguments that gives the rate as a tensor and is called in each step.
    """
    shared: dict[str, Any] = {
        "learning_rate": learning_rate,
        "weight_decay": settings.weight_decay or None,
        "global_clipnorm": settings.clip_norm,
    }
    match settings.kind:
        case "sgd":
            optimizer = SGD(momentum=settings.momentum, nesterov=settings.nesterov, **shared)
        case "adam" | "adamw":
            optimizer = Adam(beta_1=settings.momentum, **shared)
        case "rmsprop":
            optimizer = RMSprop(momentum=settings.momentum, **shared)
        case "adafactor":
            optimizer = Adafactor(**shared)
        case _:
            optimizer = _installed(settings, learning_rate)
    optimizer.exclude_from_weight_decay(var_names=[NOT_A_KERNEL])
    return optimizer


def _installed(settings: OptimizerSettings, learning_rate: float | Callable[[], Any]) -> keras.optimizers.Optimizer:
    """The optimizer that an installed package's function gives, for gradients that are summed already.

    Raises:
        SettingsError: there is no such entry point, it fails, or gives something else.
    """
    build = entry_points.named(OPTIMIZERS, settings.kind, "optimizer")
    try:
        optimizer: Any = build(settings, learning_rate)
    except Exception as error:
        raise SettingsError(f"optimizer {settings.kind}: {entry_points.reason(error)}") from error
    kind = type(optimizer)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise SettingsError(f"optimizer {settings.kind}: its function gives a {kind.__name__} vs a Keras optimizer")
    optimizer.__class__ = type(kind.__name__, (_OfSummedGradients, kind), {})
    return optimizer


class _OfSummedGradients(keras.optimizers.Optimizer):
    """An optimizer that leaves the summing over replicas to its caller."""

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars


class SGD(_OfSummedGradients, keras.optimizers.SGD):
    """Keras's, for gradients that are summed already; its variables are named after the class."""


class Adam(_OfSummedGradients, keras.optimizers.Adam):
    """Keras's, for gradients that are summed already; its variables are named after the class."""


class RMSprop(_OfSummedGradients, keras.optimizers.RMSprop):
    """Keras's, for gradients that are summed already; its variables are named after the class."""


class Adafactor(_OfSummedGradients):
    """Adafactor with the learning rate that it is given.

    Shazeer, Stern: "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018, algorithms 4 and 5: the
    second moment of a kernel is kept as its means over rows and over columns, updates are clipped by their root mean
    square, and the step is relative to the root mean square of the weights. The learning rate is the paper's relative
    step size ρ. Keras's optimizer of this name takes at most 1/sqrt(step) of it, whatever the schedule says, and keeps
    the whole second moment as well.

    Attributes:
        beta_2_decay: β₂ of step t is 1 - t to this power.
        epsilon_1: added to squared gradients.
        epsilon_2: the least root mean square that weights are taken to have.
        clip_threshold: the greatest root mean square of an update.
    """

    beta_2_decay = -0.8
    epsilon_1 = 1e-30
    epsilon_2 = 1e-3
    clip_threshold = 1.0

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the second moments: rows and columns for what has two axes or more, else one number each."""
        if self.built:
            return
        super().build(variables)
        self._moments = [self._moments_of(variable) for variable in variables]

    def _moments_of(self, variable: keras.Variable) -> tuple[Any, ...]:
        shape, name = tuple(variable.shape), variable.path.replace("/", "_")
        if len(shape) < 2:
            return (self.add_variable(shape, name=f"{name}_moment"),)
        rows, columns = shape[:-1], shape[:-2] + shape[-1:]
        return self.add_variable(rows, name=f"{name}_rows"), self.add_variable(columns, name=f"{name}_columns")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """One step of one variable."""
        moments = self._moments[self._get_variable_index(variable)]
        iterations: Any = self.iterations
        beta_2 = 1.0 - tf.cast(iterations + 1, tf.float32) ** self.beta_2_decay
        second_moment = self._updated_moment(moments, tf.square(gradient) + self.epsilon_1, beta_2)
        update = gradient / tf.sqrt(second_moment)
        update /= tf.maximum(1.0, _root_mean_square(update) / self.clip_threshold)
        scale = tf.maximum(self.epsilon_2, _root_mean_square(variable))
        self.assign_sub(variable, learning_rate * scale * update)

    def _updated_moment(self, moments: tuple[Any, ...], squares: Any, beta_2: Any) -> Any:
        """Take the squared gradients into the moving averages; the second moment that these stand for."""
        means = (squares,) if len(moments) == 1 else (tf.reduce_mean(squares, -1), tf.reduce_mean(squares, -2))
        averages = [beta_2 * moment + (1 - beta_2) * mean for moment, mean in zip(moments, means, strict=True)]
        for moment, average in zip(moments, averages, strict=True):
            self.assign(moment, average)
        if len(averages) == 1:
            return averages[0]
        rows, columns = averages
        rows /= tf.reduce_mean(rows, -1, keepdims=True)
        return rows[..., :, None] * columns[..., None, :]


def _root_mean_square(values: Any) -> Any:
    return tf.sqrt(tf.reduce_mean(tf.square(values)))
