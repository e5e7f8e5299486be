"""Muon: steps of convolutions whose singular values are all about one; Adam for everything else."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from podline.arrays import Tensor
from podline.recipes.settings import OptimizerSettings

# The polynomial's coefficients and how often it is applied: Jordan's for networks like airbench's.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 3
_ADAM_DECAYS = (0.85, 0.95)
_EPSILON = 1e-8


def muon(settings: OptimizerSettings, learning_rate: float) -> keras.optimizers.Optimizer:
    """Muon for convolutions, Adam for all else."""
    return Muon(learning_rate, settings.momentum, settings.adam_rate)


class Muon(keras.optimizers.Optimizer):
    """Momentum that is orthogonalised, for the kernels of convolutions.

    Jordan et al.: "Muon: An optimizer for hidden layers in neural networks", 2024. The kernel of a convolution is taken
    as a matrix of a row for each filter. Its step is the momentum's nearest matrix with singular values of about one,
    by three iterations of Newton and Schulz, times the learning rate; before it the kernel is scaled to a norm of the
    square root of its filters, as airbench does, so that the rate says by how much a filter turns. That is for kernels
    that a batch norm follows, whose scale means nothing: those of convolutions without a bias.

    All else takes steps of Adam with a rate of its own: the classifier, biases, norms, convolutions with a bias (the
    heads of a pose network, squeeze and excitation), and depthwise ones, whose kernel is no matrix of filters.

    Attributes:
        momentum: of the kernels of convolutions, with Nesterov's correction.
        adam_rate: Adam's rate, as a multiple of the learning rate.
    """

    def __init__(self, learning_rate: float, momentum: float, adam_rate: float) -> None:
        """Build the optimizer; see the attributes."""
        super().__init__(learning_rate, name="muon")
        self.momentum, self.adam_rate = momentum, adam_rate

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create a moment for each kernel of a convolution, two for all else."""
        if self.built:
            return
        super().build(variables)
        biased = {_layer_of(variable) for variable in variables if variable.path.endswith("bias")}
        self._turned = [_is_convolution(variable) and _layer_of(variable) not in biased for variable in variables]
        self._moments = [self._moments_of(variable) for variable in variables]

    def _moments_of(self, variable: keras.Variable) -> tuple[Tensor, ...]:
        names = ("momentum",) if self._turns(variable) else ("mean", "square")
        return tuple(self.add_variable_from_reference(variable, name) for name in names)

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        """One step of one variable."""
        moments = self._moments[self._get_variable_index(variable)]
        if self._turns(variable):
            self._turn(gradient, variable, learning_rate, *moments)
        else:
            self._adam(gradient, variable, learning_rate * self.adam_rate, *moments)

    def _turns(self, variable: Tensor) -> bool:
        return self._turned[self._get_variable_index(variable)]

    def _turn(self, gradient: Tensor, kernel: Tensor, rate: Tensor, momentum: Tensor) -> None:
        self.assign(momentum, momentum * self.momentum + gradient)
        direction = gradient + self.momentum * momentum
        value = tf.convert_to_tensor(kernel)
        filters = kernel.shape[-1]
        value *= filters**0.5 / (tf.norm(value) + _EPSILON)
        rows = tf.transpose(tf.reshape(direction, (-1, filters)))
        step = tf.reshape(tf.transpose(orthogonalised(rows)), kernel.shape)
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
    """Return a matrix's singular vectors with singular values of 0.7 to 1.2, float32 (rows, columns).

    The iteration of Newton and Schulz with Jordan's coefficients; values below a hundredth of the norm get less.
    """
    wide = matrix.shape[0] <= matrix.shape[1]
    turned = matrix if wide else tf.transpose(matrix)
    turned /= tf.norm(turned) + _EPSILON
    first, third, fifth = _NEWTON_SCHULZ
    for _ in range(_ITERATIONS):
        square = turned @ tf.transpose(turned)
        turned = first * turned + (third * square + fifth * square @ square) @ turned
    return turned if wide else tf.transpose(turned)


def _is_convolution(variable: Tensor) -> bool:
    """Whether it is a kernel of several filters; a depthwise kernel has a last axis of 1."""
    return len(variable.shape) == 4 and "kernel" in variable.name and variable.shape[-1] > 1


def _layer_of(variable: Tensor) -> str:
    return variable.path.rpartition("/")[0]
