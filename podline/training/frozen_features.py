"""Computes the outputs of a model's frozen layers once for each image and view, where a step trains only the last ones.

The features of an image depend on its pixels and the frozen weights alone, so a resumed run computes the same ones.
"""

# pyright: standard
from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.arrays import Tensor
from podline.data.records import IMAGE
from podline.input.pipeline import FeatureInput, TrainingInput
from podline.models.initial_values import SEED_STATE
from podline.models.keras_internals import nodes_of

MOST_BYTES = 2**29
"""The largest table of features, 512 MiB: two views of 52,000 images with 1,280 features."""
# Images in a forward pass: always this number, so that an image's features do not depend on the others.
_AT_ONCE = 32


class FrozenFeatures:
    """The layers of a model above its frozen ones, and the features that these layers read, by image and view.

    Attributes:
        batches: the training input with the places of features instead of images.
        table: the features, float32, (views × images, …).
    """

    def __init__(self, network: keras.Model, cut: keras.KerasTensor, images: TrainingInput) -> None:
        """Cut a model in two at one of its tensors; no feature is computed yet."""
        self._images, self.batches = images, FeatureInput.of(images)
        self._below, self._above = keras.Model(network.inputs, cut), keras.Model(cut, network.outputs)
        self._compute = tf.function(lambda images: self._below(images, training=False), autograph=False)
        self.table = tf.Variable(tf.zeros((_rows(images), *cut.shape[1:])), trainable=False)
        self._known = np.zeros(_rows(images), bool)

    @classmethod
    def of(cls, network: keras.Model, images: TrainingInput) -> FrozenFeatures | None:
        """Return the features for a training step, or None where each step has to compute all layers.

        That is: images without a fixed number of views, or mixed in pairs; a model that trains, or draws random
        numbers, below its last layers; penalties on weights; or features that need more than :data:`MOST_BYTES`.
        """
        cut = _cut(network)
        mixes = getattr(images.augmentation, "mixes", False)
        if not images.views or mixes or cut is None or network.losses:
            return None
        fits = 4 * _rows(images) * math.prod(cut.shape[1:]) <= MOST_BYTES
        return cls(network, cut, images) if fits else None

    @property
    def losses(self) -> list[Any]:
        """The penalties of the last call: none."""
        return self._above.losses

    def __call__(self, places: Tensor, *, training: bool) -> Any:
        """Return the model's outputs for the images at some places of the table."""
        return self._above(tf.gather(self.table, places), training=training)

    def prepare(self, first: int, end: int) -> None:
        """Compute the missing features of batches ``first`` to ``end - 1``."""
        order = self._images.order
        for epoch, ids in map(order.batch, range(first, end)):
            missing = ids[~self._known[self.batches.places(epoch, ids)]]
            for start in range(0, len(missing), _AT_ONCE):
                self._fill(epoch, missing[start : start + _AT_ONCE])

    def _fill(self, epoch: int, ids: npt.NDArray[np.int64]) -> None:
        padded = np.resize(ids, _AT_ONCE)
        stored = self._images.reader.gather(self._images.order.records(padded), self._images.fields)
        features = self._compute(tf.constant(self._images.augmented(epoch, padded, stored)[IMAGE]))
        places = self.batches.places(epoch, ids)
        self.table.scatter_update(tf.IndexedSlices(features[: len(ids)], tf.constant(places)))
        self._known[places] = True


def _rows(images: TrainingInput) -> int:
    return images.views * images.order.split_count


def _cut(network: keras.Model) -> keras.KerasTensor | None:
    """Return the input of the first layer that changes from step to step, if only a chain of layers follows it."""
    nodes = {id(output): node for node in nodes_of(network) for output in node.outputs}
    changing = [layer for layer in network.layers if _changes(layer)]
    tensor, *others = network.outputs
    if others:
        return None
    while changing and (node := nodes.get(id(tensor))) and len(node.inputs) == 1:
        [tensor] = node.inputs
        if node.operation in changing:
            changing.remove(node.operation)
            if not changing:
                return tensor
    return None


def _changes(layer: Any) -> bool:
    """Return whether a layer trains, or draws random numbers in training."""
    if not isinstance(layer, keras.layers.Layer):
        return False
    return bool(layer.trainable_variables) or any(variable.name == SEED_STATE for variable in layer.variables)
