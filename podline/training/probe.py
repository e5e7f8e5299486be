"""Measures every layer's output for a few fixed images."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.arrays import Tensor
from podline.training.findings import LayerFigures, ProbeFigures

# Activations with a zero range: a channel that is zero everywhere passes no gradient.
_CUTTING = (keras.layers.ReLU, keras.layers.Activation)


class Probe:
    """Measures one model in its current state."""

    def __init__(
        self, strategy: tf.distribute.Strategy, model: keras.Model, images: npt.NDArray[np.uint8], data_format: str
    ) -> None:
        """Prepare the probe of a model."""
        self._strategy, self._count = strategy, len(images)
        self._channels = 1 if data_format == "channels_first" else -1
        self._layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
        self._answers = list(model.output_names)
        with strategy.scope():
            self._images = tf.constant(images)
            self._model = keras.Model(
                model.inputs, {"layers": [layer.output for layer in self._layers], "answers": model.outputs}
            )
        self._look = tf.function(self._on_devices, autograph=False)

    def figures(self) -> ProbeFigures:
        """Return the current figures; an infinite magnitude becomes the largest number of its type."""
        dead, largest, spreads = (self._strategy.experimental_local_results(value)[0] for value in self._look())
        finite = np.nan_to_num(largest.numpy()).tolist()
        layers = [
            LayerFigures(layer.name, int(layer.output.shape[self._axis(layer.output)]), int(number), size)
            for layer, number, size in zip(self._layers, dead.numpy(), finite, strict=True)
        ]
        return ProbeFigures(self._count, layers, dict(zip(self._answers, spreads.numpy().tolist(), strict=True)))

    def _on_devices(self) -> Any:
        return self._strategy.run(self._figures)

    def _figures(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return dead channels and largest magnitude per layer, and spread per answer: float32."""
        outputs = self._model(self._images, training=False)
        sizes = [tf.abs(tf.cast(output, tf.float32)) for output in outputs["layers"]]
        dead = [
            self._dead(size) if isinstance(layer, _CUTTING) else tf.constant(0.0)
            for layer, size in zip(self._layers, sizes, strict=True)
        ]
        return (
            tf.stack(dead),
            tf.stack([tf.reduce_max(size) for size in sizes]),
            tf.stack([_spread(answer) for answer in outputs["answers"]]),
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
