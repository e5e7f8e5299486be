"""Measures the outputs of all layers for a few fixed images."""

# pyright: standard
from __future__ import annotations

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.base.arrays import Tensor
from podline.models.opened import OpenedModel
from podline.training.findings import LayerFigures, ProbeFigures

# Activations with a zero range, such as ReLU: a channel that is zero everywhere passes no gradient.
_CUTTING = (keras.layers.ReLU, keras.layers.Activation)


class Probe:
    """Measures one model in its current state."""

    def __init__(
        self, strategy: tf.distribute.Strategy, model: keras.Model, images: npt.NDArray[np.uint8], data_format: str
    ) -> None:
        """Prepare the probe of a model.

        Args:
            strategy: the strategy of the model.
            model: the model to measure.
            images: the images of the probe, uint8 (n, height, width, channels).
            data_format: the format of the model's maps, ``channels_last`` or ``channels_first``.
        """
        self._strategy, self._count = strategy, len(images)
        self._channels = 1 if data_format == "channels_first" else -1
        self._answers = list(model.output_names)
        self._rows: list[tuple[str, int]] = []  # each output's name and number of channels
        self._model = OpenedModel(model)
        with strategy.scope():
            self._images = tf.constant(images)
        self._look = tf.function(lambda: strategy.run(self._figures), autograph=False)

    def figures(self) -> ProbeFigures:
        """Return the statistics of the model's current state; infinity becomes the largest float32, NaN becomes 0."""
        dead, largest, spreads = (self._strategy.experimental_local_results(value)[0] for value in self._look())
        finite = np.nan_to_num(largest.numpy()).tolist()
        layers = [
            LayerFigures(name, channels, int(number), size)
            for (name, channels), number, size in zip(self._rows, dead.numpy(), finite, strict=True)
        ]
        return ProbeFigures(self._count, layers, dict(zip(self._answers, spreads.numpy().tolist(), strict=True)))

    def _figures(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Run the model on the probe's images.

        Returns:
            Float32 vectors: the dead channels and the largest magnitude of each layer's output, and the relative
            standard deviation of each model output.
        """
        answers, inner = self._model(self._images, training=False)
        outputs = [output for output in inner if output.is_of_layer and len(output.value.shape) > 1]
        sizes = [tf.abs(tf.cast(output.value, tf.float32)) for output in outputs]
        self._rows = [
            (output.name, size.shape[self._axis(size)] or 1) for output, size in zip(outputs, sizes, strict=True)
        ]
        dead = [
            self._dead(size) if isinstance(output.operation, _CUTTING) else tf.constant(0.0)
            for output, size in zip(outputs, sizes, strict=True)
        ]
        return (
            tf.stack(dead),
            tf.stack([tf.reduce_max(size) for size in sizes]),
            tf.stack([_spread(answer) for answer in keras.tree.flatten(answers)]),
        )

    def _dead(self, size: Tensor) -> Tensor:
        axis = self._axis(size)
        others = [place for place in range(len(size.shape)) if place != axis]
        return tf.reduce_sum(tf.cast(tf.reduce_max(size, others) == 0, tf.float32))

    def _axis(self, output: Tensor) -> int:
        """Return the axis of the channels."""
        return self._channels % len(output.shape) if len(output.shape) > 2 else len(output.shape) - 1


def _spread(answer: Tensor) -> Tensor:
    left = answer - tf.reduce_mean(answer, 0, keepdims=True)
    return tf.math.divide_no_nan(_root_mean_square(left), _root_mean_square(answer))


def _root_mean_square(values: Tensor) -> Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(values)))
