"""The norms of gradients, in all and by block of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

TOTAL = "gradient_norm"


def block_of(variable: keras.Variable) -> str:
    """The block that a variable belongs to, by the first part of its name: ``stage1`` of ``stage1_conv/kernel``."""
    return variable.path.split("/")[0].split("_")[0]


class GradientNorms:
    """Euclidean norms of the gradients of some variables.

    Attributes:
        blocks: the blocks of the variables, in the order of the network.
    """

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        self.blocks = tuple(dict.fromkeys(block_of(variable) for variable in variables))
        self._members = [
            [place for place, variable in enumerate(variables) if block_of(variable) == block] for block in self.blocks
        ]

    @property
    def shape(self) -> tuple[int]:
        """Of what :meth:`of` gives."""
        return (1 + len(self.blocks),)

    def of(self, gradients: Sequence[Any]) -> Any:
        """The norm of all gradients together, and that of each block: float32, of :attr:`shape`.

        Args:
            gradients: one for each variable, summed over the replicas, before anything bounds them; None counts
                nothing.
        """
        squares = [None if gradient is None else tf.nn.l2_loss(gradient) for gradient in gradients]
        sums = tf.stack([_sum([squares[place] for place in places]) for places in self._members])
        return tf.sqrt(2.0 * tf.concat([tf.reduce_sum(sums, keepdims=True), sums], 0))

    def series(self, norms: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
        """The norms of several steps, shape (steps, …), by name: ``gradient_norm`` and one for each block."""
        names = [TOTAL, *(f"{TOTAL}/{block}" for block in self.blocks)]
        return dict(zip(names, norms.T, strict=True))


def _sum(squares: Sequence[Any]) -> Any:
    there = [square for square in squares if square is not None]
    return tf.add_n(there) if there else tf.constant(0.0)
