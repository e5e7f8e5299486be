"""The optimizers: those of Keras, and Podline's Adafactor, because Keras's Adafactor overrides the learning rate.

All optimizers receive gradients that are already summed over the replicas. Keras would clip each replica's gradient
before the sum, which gives another step than on one device. Installed packages and Podline build optimizers by
functions of the settings and a rate. This module adds weight decay, clipping and the sum, so all optimizers share them.
"""

# pyright: standard
from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import keras
import tensorflow as tf

from podline.base.arrays import Tensor
from podline.base.errors import SettingsError
from podline.models.keras_internals import APPLYING, place_in, without_sum
from podline.models.variables import Variables, is_kernel
from podline.recipes.keras_optimizers import KERAS_OPTIMIZERS, OF_THE_RECIPE
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
    """Build a recipe's optimizer for ``variables``; call this in the strategy's scope.

    Weight decay is decoupled in every optimizer: each step first multiplies a kernel by ``1 - learning rate ×
    weight_decay`` (Loshchilov, Hutter: "Decoupled Weight Decay Regularization", ICLR 2019). Kernels are chosen by
    :func:`podline.models.variables.is_kernel`. ``clip_norm`` bounds the norm of all gradients together. ``rates``
    multiplies the learning rate, and so the decay, of the weights whose paths have a prefix.

    Args:
        settings: the recipe's section ``optimizer``.
        variables: the variables to train.
        learning_rate: the rate; a training sets it before each step.
        layers: the layers of the variables; ``muon`` reads the filters' axis of each kernel from their classes.

    Raises:
        SettingsError: the optimizer does not exist, its function fails, or it returns an unusable optimizer; or a
            prefix of ``rates`` applies to no weight.
    """
    optimizer = OPTIMIZERS.make(settings, settings, learning_rate)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise SettingsError(
            f"optimizer {settings.kind}: its function gives a {type(optimizer).__name__}, expected a "
            "keras.optimizers.Optimizer"
        )
    _require_usable(settings.kind, optimizer, learning_rate)
    optimizer.weight_decay, optimizer.global_clipnorm = None, settings.clip_norm
    without_sum(optimizer)
    if isinstance(optimizer, Muon):
        optimizer.filter_axes = filter_axes(layers)
    decay = _decay_of(settings)
    factors = [_rate_of(variable.path, settings.rates) for variable in variables]
    unused = settings.rates.keys() - {prefix for prefix, _ in factors}
    if unused and variables:
        raise SettingsError(
            f"optimizer.rates: {min(unused)!r} is not the longest prefix of any weight that trains; "
            f"the weights are: {', '.join(variable.path for variable in variables)}"
        )
    decays = [decay if is_kernel(variable) else 0.0 for variable in variables]
    _scale_steps(optimizer, [factor for _, factor in factors], decays)
    optimizer.build(variables)
    return optimizer


def _rate_of(path: str, rates: Mapping[str, float]) -> tuple[str, float]:
    """Return the longest prefix that matches a weight's path, and the prefix's factor; ``""`` and 1 without a match."""
    matching = [prefix for prefix in rates if fnmatchcase(path, f"{prefix}*")]
    prefix = max(matching, key=len, default="")
    return prefix, rates[prefix] if matching else 1.0


def _scale_steps(optimizer: Any, factors: Sequence[float], decays: Sequence[float]) -> None:
    """Make an optimizer decay each variable before its step, and scale the variable's learning rate."""
    take_step = optimizer.update_step

    def update_step(gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        place = place_in(optimizer, variable)
        rate = tf.cast(learning_rate, variable.dtype)
        if factors[place] != 1:
            rate *= factors[place]
        if decays[place]:
            optimizer.assign_sub(variable, variable * tf.cast(decays[place], variable.dtype) * rate)
        take_step(gradient, variable, rate)

    optimizer.update_step = update_step


def _decay_of(settings: OptimizerSettings) -> float:
    """Return the weight decay of the settings, or else the default of Keras's optimizer; 0 for other optimizers."""
    if settings.weight_decay is not None or settings.kind not in KERAS_OPTIMIZERS:
        return settings.weight_decay or 0.0
    return inspect.signature(_keras_class(settings.kind).__init__).parameters["weight_decay"].default or 0.0


def _keras_class(kind: str) -> Any:
    return getattr(keras.optimizers, KERAS_OPTIMIZERS[kind])


def of_keras(settings: OptimizerSettings, learning_rate: float) -> keras.optimizers.Optimizer:
    """Build an optimizer of Keras; arguments that the settings do not give have Keras's defaults.

    Raises:
        SettingsError: an option is not an argument of the optimizer, or has a wrong value.
    """
    made = _keras_class(settings.kind)
    given = {"momentum": settings.momentum, "nesterov": settings.nesterov}
    options = {name: value for name, value in given.items() if value is not None} | settings.options
    known = inspect.signature(made.__init__).parameters.keys() - OF_THE_RECIPE.keys() - {"self", "kwargs", "name"}
    if unknown := sorted(settings.options.keys() - known):
        raise SettingsError(
            f"optimizer {settings.kind}: got options.{unknown[0]}, expected one of {', '.join(sorted(known))}"
        )
    if "adam_weight_decay" in inspect.signature(made.__init__).parameters:
        options["adam_weight_decay"] = None
    try:
        return made(learning_rate, weight_decay=0.0, **options)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"optimizer {settings.kind}: {options}: {error}") from error


def _require_usable(kind: str, optimizer: keras.optimizers.Optimizer, learning_rate: float) -> None:
    for name in APPLYING if kind not in KERAS_OPTIMIZERS else ():
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
            f"optimizer {kind}: it has a schedule of its own, but the recipe sets the schedule; give the optimizer the "
            "rate that its function gets"
        ) from None


def adafactor(_settings: OptimizerSettings, learning_rate: float) -> keras.optimizers.Optimizer:
    """Build Podline's :class:`Adafactor`."""
    return Adafactor(learning_rate)


class Adafactor(keras.optimizers.Optimizer):
    """Adafactor that follows the given learning rate.

    Shazeer, Stern: "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML 2018, algorithms 4 and 5: the
    second moment of a kernel is kept as its means over rows and over columns, updates are clipped by their root mean
    square, and the step is relative to the weights' root mean square. The learning rate is the paper's relative
    step size ρ. Keras's Adafactor caps the rate at 1/sqrt(step), whatever the schedule, and also keeps the
    whole second moment.

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
        """Create the second moments: row and column means for variables of two or more axes, else full moments."""
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
