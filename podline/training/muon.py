"""Muon for convolutions: orthogonalised momentum. All other variables use Adam."""

# pyright: standard
from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from podline.base.arrays import Tensor
from podline.models.keras_internals import place_in
from podline.recipes.settings import OptimizerSettings

# The polynomial's coefficients and its number of iterations: Jordan's values for networks like airbench's.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 3
_ADAM_DECAYS = (0.85, 0.95)
_EPSILON = 1e-8


def muon(settings: OptimizerSettings, learning_rate: float) -> keras.optimizers.Optimizer:
    """Build Muon for convolutions, with Adam for all other variables."""
    return Muon(learning_rate, 0.9 if settings.momentum is None else settings.momentum, settings.adam_rate)


class Muon(keras.optimizers.Optimizer):
    """Orthogonalised momentum for the kernels of convolutions, Adam for all other variables.

    Jordan et al.: "Muon: An optimizer for hidden layers in neural networks", 2024. A convolution's kernel is treated as
    a matrix with one row per filter. Its step is the learning rate times the momentum with singular values replaced
    by about one, computed by three iterations of Newton and Schulz. Before the step the kernel is
    scaled to a norm of the square root of its number of filters, as in airbench, so that the rate is the angle by which
    a filter turns. This suits kernels before a batch norm, whose scale has no effect: those of convolutions without a
    bias.

    Adam, with a separate rate, updates all other variables: the classifier, biases, norms, convolutions with a
    bias (heads of pose networks, squeeze and excitation) and depthwise ones, whose kernel is not a matrix of filters.

    Attributes:
        momentum: decay of the momentum of convolution kernels, which has Nesterov's correction.
        adam_rate: Adam's rate, as a multiple of the learning rate.
        filter_axes: the axis of the filters where it is not the last one; see :func:`filter_axes`.
    """

    def __init__(self, learning_rate: float, momentum: float, adam_rate: float) -> None:
        """Configure the optimizer; the class docstring explains the arguments."""
        super().__init__(learning_rate, name="muon")
        self.momentum, self.adam_rate = momentum, adam_rate
        self.filter_axes: Mapping[int, int | None] = {}

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create one moment for each kernel that is orthogonalised, and two for every other variable."""
        if self.built:
            return
        super().build(variables)
        biased = {_layer_of(variable) for variable in variables if variable.path.endswith("bias")}
        self._axes = [None if _layer_of(variable) in biased else self._axis_of(variable) for variable in variables]
        self._moments = [self._moments_of(variable) for variable in variables]

    def _axis_of(self, variable: keras.Variable) -> int | None:
        """Return the axis of a kernel's filters; None for kernels with one filter, and for variables of Adam."""
        axis = self.filter_axes.get(id(variable), -1)
        is_convolution = len(variable.shape) == 4 and "kernel" in variable.name
        return axis if axis is not None and is_convolution and variable.shape[axis] > 1 else None

    def _moments_of(self, variable: keras.Variable) -> tuple[Tensor, ...]:
        names = ("mean", "square") if self._axes[place_in(self, variable)] is None else ("momentum",)
        return tuple(self.add_variable_from_reference(variable, name) for name in names)

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        """Apply one step to one variable."""
        place = place_in(self, variable)
        moments, axis = self._moments[place], self._axes[place]
        if axis is None:
            self._adam(gradient, variable, learning_rate * self.adam_rate, *moments)
        else:
            self._turn(gradient, variable, learning_rate, axis, *moments)

    def _turn(self, gradient: Tensor, kernel: Tensor, rate: Tensor, axis: int, momentum: Tensor) -> None:
        self.assign(momentum, momentum * self.momentum + gradient)
        direction = gradient + self.momentum * momentum
        value = tf.convert_to_tensor(kernel)
        filters = kernel.shape[axis]
        value *= filters**0.5 / (tf.norm(value) + _EPSILON)
        last = direction if axis == -1 else tf.linalg.matrix_transpose(direction)
        rows = tf.transpose(tf.reshape(last, (-1, filters)))
        step = tf.reshape(tf.transpose(orthogonalised(rows)), last.shape)
        step = step if axis == -1 else tf.linalg.matrix_transpose(step)
        self.assign(kernel, value - rate * step)

    def _adam(self, gradient: Tensor, variable: Tensor, rate: Tensor, mean: Tensor, square: Tensor) -> None:
        iterations: Tensor = self.iterations
        steps = tf.cast(iterations + 1, tf.float32)
        for moment, value, decay in zip((mean, square), (gradient, tf.square(gradient)), _ADAM_DECAYS, strict=True):
            self.assign(moment, moment * decay + value * (1 - decay))
        first, second = (
            tf.convert_to_tensor(moment) / (1 - tf.pow(decay, steps))
            for moment, decay in zip((mean, square), _ADAM_DECAYS, strict=True)
        )
        self.assign_sub(variable, rate * first / (tf.sqrt(second) + _EPSILON))


def orthogonalised(matrix: Tensor) -> Tensor:
    """Return a float32 matrix (rows, columns) with the same singular vectors, and singular values of 0.68 to 1.2.

    This is the iteration of Newton and Schulz with Jordan's coefficients. Singular values below a fiftieth of the norm
    stay smaller.
    """
    wide = matrix.shape[0] <= matrix.shape[1]
    turned = matrix if wide else tf.transpose(matrix)
    turned /= tf.norm(turned) + _EPSILON
    first, third, fifth = _NEWTON_SCHULZ
    for _ in range(_ITERATIONS):
        square = turned @ tf.transpose(turned)
        turned = first * turned + (third * square + fifth * square @ square) @ turned
    return turned if wide else tf.transpose(turned)


def filter_axes(layers: Sequence[keras.layers.Layer]) -> dict[int, int | None]:
    """Map ``id(kernel)`` to the filters' axis in transposed convolutions, and to None in depthwise convolutions."""
    kinds = {keras.layers.Conv2DTranspose: -2, keras.layers.DepthwiseConv2D: None}
    return {id(layer.kernel): axis for kind, axis in kinds.items() for layer in layers if isinstance(layer, kind)}


def _layer_of(variable: Tensor) -> str:
    return variable.path.rpartition("/")[0]
