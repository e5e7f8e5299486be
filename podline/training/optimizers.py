"""The optimizers: Keras's, and an own Adafactor, because Keras's overrides the learning rate.

All optimizers receive gradients that are already summed over the replicas. Keras would clip each replica's gradient
before the sum, which gives another step than on one device. Installed packages and Podline build optimizers alike, by
functions of the settings and a rate. This module adds weight decay, clipping and the sum, so they are equal for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from podline.arrays import Tensor
from podline.errors import SettingsError
from podline.models.keras_internals import APPLYING, place_in, without_sum
from podline.models.variables import Variables, is_kernel
from podline.recipes.parts import OPTIMIZERS
from podline.recipes.settings import OptimizerSettings
from podline.training.muon import Muon, filter_axes

# Arguments of Keras's optimizers that only the recipe may set.
_OTHER_BOUNDS = ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay", "use_ema", "gradient_accumulation_steps")


def build_optimizer(
    settings: OptimizerSettings,
    variables: Variables,
    learning_rate: float = 0.0,
    layers: Sequence[keras.layers.Layer] = (),
) -> keras.optimizers.Optimizer:
    """Build a recipe's optimizer for some variables, in the strategy's scope.

    ``momentum`` is the momentum of ``sgd`` and ``rmsprop`` and the first beta of ``adam`` and ``adamw``; ``adafactor``
    has none, and :mod:`podline.training.muon` explains ``muon``'s. ``nesterov`` applies to ``sgd``. Weight decay is
    decoupled in every optimizer: each step first multiplies a kernel by ``1 - learning rate × weight_decay``
    (Loshchilov, Hutter: "Decoupled Weight Decay Regularization", ICLR 2019), so ``adam`` with decay is ``adamw``.
    Kernels are chosen by :func:`podline.models.variables.is_kernel`. ``clip_norm`` bounds the norm of all gradients
    together.

    Args:
        settings: the settings.
        variables: the variables to train.
        learning_rate: the rate; a training sets it before each step.
        layers: the layers of the variables, of which ``muon`` learns what their kernels mean.

    Raises:
        SettingsError: the optimizer does not exist, its function fails, or it returns an unusable optimizer.
    """
    optimizer = OPTIMIZERS.make(settings, settings, learning_rate)
    _require_usable(settings.kind, optimizer, learning_rate)
    optimizer.weight_decay = settings.weight_decay or None
    optimizer.global_clipnorm = settings.clip_norm
    optimizer.exclude_from_weight_decay([variable for variable in variables if not is_kernel(variable)])
    without_sum(optimizer)
    if isinstance(optimizer, Muon):
        optimizer.filter_axes = filter_axes(layers)
    optimizer.build(variables)
    return optimizer


def _require_usable(kind: str, optimizer: object, learning_rate: float) -> None:
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise SettingsError(
            f"optimizer {kind}: its function gives a {type(optimizer).__name__}, expected a keras.optimizers.Optimizer"
        )
    for name in APPLYING:
        if getattr(type(optimizer), name) is not getattr(keras.optimizers.Optimizer, name):
            raise SettingsError(
                f"optimizer {kind}: {type(optimizer).__name__} has a {name} of its own; write update_step, and leave "
                "weight decay, the bound of the gradient and the sum over replicas to Podline"
            )
    for name in _OTHER_BOUNDS:
        if getattr(optimizer, name):
            raise SettingsError(
                f"optimizer {kind}: {name}={getattr(optimizer, name)}: leave it out, or give 0; a recipe has "
                "optimizer.weight_decay, optimizer.clip_norm and ema_decay"
            )
    try:
        optimizer.learning_rate = learning_rate
    except TypeError:
        raise SettingsError(
            f"optimizer {kind}: it has a schedule of its own; give it the rate that its function gets, since the "
            "schedule is the recipe's"
        ) from None


def sgd(settings: OptimizerSettings, learning_rate: float) -> keras.optimizers.Optimizer:
    """Build stochastic gradient descent with momentum."""
    return keras.optimizers.SGD(learning_rate, settings.momentum, settings.nesterov)


def adam(settings: OptimizerSettings, learning_rate: float) -> keras.optimizers.Optimizer:
    """Build Adam, or AdamW if the settings have weight decay."""
    return keras.optimizers.Adam(learning_rate, beta_1=settings.momentum)


def rmsprop(settings: OptimizerSettings, learning_rate: float) -> keras.optimizers.Optimizer:
    """Build RMSprop with momentum."""
    return keras.optimizers.RMSprop(learning_rate, momentum=settings.momentum)


def adafactor(_settings: OptimizerSettings, learning_rate: float) -> keras.optimizers.Optimizer:
    """Build Podline's own Adafactor."""
    return Adafactor(learning_rate)


class Adafactor(keras.optimizers.Optimizer):
    """Adafactor that follows the given learning rate.

    Shazeer, Stern: "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018, algorithms 4 and 5: the
    second moment of a kernel is kept as its means over rows and over columns, updates are clipped by their root mean
    square, and the step is relative to the root mean square of the weights. The learning rate is the paper's relative
    step size ρ. Keras's optimizer of this name caps the rate at 1/sqrt(step), whatever the schedule says, and keeps the
    whole second moment as well.

    Attributes:
        beta_2_decay: β₂ of step t is 1 - t to the power of this value.
        epsilon_1: added to squared gradients.
        epsilon_2: lower bound of the weights' root mean square.
        clip_threshold: upper bound of an update's root mean square.
    """

    beta_2_decay = -0.8
    epsilon_1 = 1e-30
    epsilon_2 = 1e-3
    clip_threshold = 1.0

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the second moments: rows and columns for variables of two or more axes, else full ones."""
        if self.built:
            return
        super().build(variables)
        self._moments = [self._moments_of(variable) for variable in variables]

    def _moments_of(self, variable: keras.Variable) -> tuple[Tensor, ...]:
        shape, name = tuple(variable.shape), variable.path.replace("/", "_")
        if len(shape) < 2:
            return (self.add_variable(shape, name=f"{name}_moment"),)
        rows, columns = shape[:-1], shape[:-2] + shape[-1:]
        return self.add_variable(rows, name=f"{name}_rows"), self.add_variable(columns, name=f"{name}_columns")

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        """Apply one step to one variable."""
        moments = self._moments[place_in(self, variable)]
        iterations: Tensor = self.iterations
        beta_2 = 1.0 - tf.cast(iterations + 1, tf.float32) ** self.beta_2_decay
        second_moment = self._updated_moment(moments, tf.square(gradient) + self.epsilon_1, beta_2)
        update = gradient / tf.sqrt(second_moment)
        update /= tf.maximum(1.0, _root_mean_square(update) / self.clip_threshold)
        scale = tf.maximum(self.epsilon_2, _root_mean_square(variable))
        self.assign_sub(variable, learning_rate * scale * update)

    def _updated_moment(self, moments: tuple[Tensor, ...], squares: Tensor, beta_2: Tensor) -> Tensor:
        """Update the moving averages of squared gradients; return the second moment that they approximate."""
        means = (squares,) if len(moments) == 1 else (tf.reduce_mean(squares, -1), tf.reduce_mean(squares, -2))
        averages = [beta_2 * moment + (1 - beta_2) * mean for moment, mean in zip(moments, means, strict=True)]
        for moment, average in zip(moments, averages, strict=True):
            self.assign(moment, average)
        if len(averages) == 1:
            return averages[0]
        rows, columns = averages
        rows /= tf.reduce_mean(rows, -1, keepdims=True)
        return rows[..., :, None] * columns[..., None, :]


def _root_mean_square(values: Tensor) -> Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(values)))
