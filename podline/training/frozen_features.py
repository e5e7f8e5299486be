"""Computes the outputs of a model's frozen layers once for each image and view, where a step trains only the last ones.

The features of an image depend on its pixels and the frozen weights alone, so a resumed run computes the same ones.
"""

# pyright: standard
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.base.arrays import Tensor
from podline.data.records import IMAGE
from podline.input.pipeline import FeatureInput, TrainingInput
from podline.models.initial_values import SEED_STATE
from podline.models.keras_internals import CallNode, nodes_of

MOST_BYTES = 2**30
"""The largest tables of features, 1 GiB: two views of 104,000 images with 1,280 features."""
# Images in a forward pass: always this number, so that an image's features do not depend on the others.
_AT_ONCE = 32
_RANK_OF_MAPS = 4


class FrozenFeatures:
    """The layers of a model above its frozen ones, and the features that these layers read, by image and view.

    Attributes:
        batches: the training input with the places of features instead of images.
        tables: the features, (views × images, …), one table for each tensor that the layers above read: float32, and
            float16 for maps.
    """

    def __init__(self, below: keras.Model, network: keras.Model, images: TrainingInput) -> None:
        """Take the frozen part of a model, whose outputs the other layers read; no feature is computed yet."""
        self._images, self.batches = images, FeatureInput.of(images)
        cut = below.outputs
        self._below, self._above = below, keras.Model([*cut], network.output)
        self._compute = tf.function(lambda images: self._below(images, training=False), autograph=False)
        self.tables = [
            tf.Variable(tf.zeros((images.rows, *tensor.shape[1:]), _type_of(tensor)), trainable=False) for tensor in cut
        ]
        self._known = np.zeros(images.rows, bool)

    @classmethod
    def of(cls, network: keras.Model, images: TrainingInput) -> FrozenFeatures | None:
        """Return the features for a training step, or None where each step has to compute all layers.

        That is: images without a fixed number of views, or mixed in pairs; augmentation that may change other fields in
        an unknown way; a model that trains, or draws random numbers, from its first layer with a kernel on;
        penalties on weights; or features that need more than :data:`MOST_BYTES`.
        """
        given = images.augmentation
        unknown = given.beside_images is None or given.also or getattr(given, "mixes", False)
        if not given.views or unknown or network.losses:
            return None
        cut = _cut(network)
        row = sum(math.prod(tensor.shape[1:]) * _type_of(tensor).size for tensor in cut)
        if not 0 < images.rows * row <= MOST_BYTES:
            return None
        below = keras.Model(network.inputs, cut)
        has_kernels = any(len(weight.shape) > 1 for weight in below.weights)
        return cls(below, network, images) if has_kernels else None

    @property
    def losses(self) -> list[Any]:
        """The penalties of the last call: none."""
        return self._above.losses

    def __call__(self, places: Tensor, *, training: bool) -> Any:
        """Return the model's outputs for the images at some places of the table."""
        features = [tf.cast(tf.gather(table, places), tf.float32) for table in self.tables]
        return self._above(features, training=training)

    def prepare(self, first: int, end: int) -> None:
        """Compute the missing features of batches ``first`` to ``end - 1``."""
        order = self._images.order
        for epoch, ids in map(order.batch, range(first, end)):
            missing = ids[~self._known[self._images.places(epoch, ids)]]
            for start in range(0, len(missing), _AT_ONCE):
                self._fill(epoch, missing[start : start + _AT_ONCE])

    def _fill(self, epoch: int, ids: npt.NDArray[np.int64]) -> None:
        padded = np.resize(ids, _AT_ONCE)
        stored = self._images.reader.gather(self._images.order.records(padded), self._images.fields)
        features = self._compute(tf.constant(self._images.augmented(epoch, padded, stored)[IMAGE]))
        places = tf.constant(self._images.places(epoch, ids))
        for table, values in zip(self.tables, keras.tree.flatten(features), strict=True):
            table.scatter_update(tf.IndexedSlices(tf.cast(values[: len(ids)], table.dtype), places))
        self._known[places] = True


def _type_of(tensor: keras.KerasTensor) -> tf.DType:
    return tf.float16 if len(tensor.shape) == _RANK_OF_MAPS else tf.float32


def _cut(network: keras.Model) -> list[keras.KerasTensor]:
    """Return the tensors that stay the same from step to step, and that layers which change read.

    It is empty if an image itself is among them, or an output.
    """
    nodes, changing, before = [*nodes_of(network)], set[int](), -1
    while len(changing) > before:  # the nodes of a layer with several calls are in no order
        before = len(changing)
        for node in nodes:
            if _changes(node.operation) or any(id(tensor) in changing for tensor in node.inputs):
                changing.update(map(id, node.outputs))
    above = [node for node in nodes if any(id(output) in changing for output in node.outputs)]
    read = {id(tensor): tensor for node in above for tensor in node.inputs if id(tensor) not in changing}
    makers = {id(output): node for node in nodes for output in node.outputs}
    cut = {id(tensor): tensor for tensor in (_smallest(each, makers) for each in read.values())}
    ends = {id(tensor) for tensor in (*network.inputs, *network.outputs)}
    return [] if ends & cut.keys() or any(id(output) not in changing for output in network.outputs) else [*cut.values()]


def _smallest(tensor: keras.KerasTensor, makers: Mapping[int, CallNode]) -> keras.KerasTensor:
    """Return the tensor with the fewest channels from which a chain of layers computes another of the same size.

    A step can afford these few layers; their outputs would need several times the memory.
    """
    smallest = tensor
    while (node := makers.get(id(tensor))) and len(node.inputs) == 1 and id(node.inputs[0]) in makers:
        before, [tensor] = tensor, node.inputs
        if tensor.shape[:-1] != before.shape[:-1]:
            break
        smallest = min(smallest, tensor, key=lambda each: each.shape[-1])
    return smallest


def _changes(layer: Any) -> bool:
    """Return whether a layer trains, or draws random numbers in training."""
    if not isinstance(layer, keras.layers.Layer):
        return False
    return bool(layer.trainable_variables) or any(variable.name == SEED_STATE for variable in layer.variables)
