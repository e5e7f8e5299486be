"""Computes the outputs of frozen layers once for each image and view, if a step trains only the last layers.

A view is one of a fixed number of augmented versions of an image.

The features of an image depend on its pixels and the frozen weights alone, so a resumed run computes the same features.
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
"""The most bytes of feature tables, 1 GiB: for example, two views of 104,000 images with 1,280 features."""
# Images in a forward pass: always this number, so that an image's features do not depend on the other images.
_AT_ONCE = 32
_RANK_OF_MAPS = 4


class FrozenFeatures:
    """The layers of a model after its frozen layers, and the frozen layers' outputs (features) for each image and view.

    Attributes:
        batches: the training input with row numbers of the tables instead of images.
        tables: the features, (views × images, …), one table for each tensor that the later layers read: float16 for
            maps, else float32.
    """

    def __init__(self, below: keras.Model, network: keras.Model, images: TrainingInput) -> None:
        """Split ``network`` after ``below``, its frozen layers; no feature is computed yet."""
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
        """Return the features for a training step, or None if each step must compute all layers.

        The result is None if images have no fixed number of views or are mixed in pairs; if augmentation may change
        other fields in an unknown way; if the first layer with a kernel already trains or draws random numbers; if an
        output of the model depends on no layer that trains; if weights have penalties; or if the features need more
        than :data:`MOST_BYTES`.
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
        """The penalties of the layers: always empty, because :meth:`of` refuses models with penalties."""
        return self._above.losses

    def __call__(self, places: Tensor, *, training: bool) -> Any:
        """Return the model's outputs for the rows ``places``, int64 (n,), of the tables."""
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
    """Return the outputs of frozen layers from which the changing layers can be computed.

    A layer is changing if it trains, draws random numbers, or follows a changing layer. The list is empty if it would
    contain an input of the model, or if an output of the model does not depend on a changing layer.
    """
    nodes, changing, before = [*nodes_of(network)], set[int](), -1
    while len(changing) > before:  # nodes are not in topological order if a layer is called several times
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
    """Return the tensor with the fewest channels from which a chain of layers computes ``tensor``.

    All tensors of the chain have the same height and width. Each step computes the few layers of the chain again,
    because a table of ``tensor`` itself could need several times the memory.
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
