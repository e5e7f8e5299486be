"""Computes the score of the MicroNet challenge.

The challenge (NeurIPS 2019, https://micronet-challenge.github.io) ranked CIFAR-100 models by the cost of inference,
relative to WideResNet-28-10. :func:`micronet_score` lists the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import keras
from keras import layers

from podline.documents.model_description import MicroNetScore
from podline.models.calls import Call, calls_of, multiply_adds, stock, total

WIDE_RESNET_STORAGE = 36.5e6
WIDE_RESNET_OPERATIONS = 10.49e9

# Operations of an activation per value: an exponential, a root or an error function counts as one.
_ACTIVATIONS = {"linear": 0, "relu": 1, "relu6": 1, "tanh": 1, "sigmoid": 4, "silu": 5, "gelu": 5}
_KERNELS: tuple[type[layers.Layer], ...] = (layers.Conv2D, layers.DepthwiseConv2D, layers.Dense, layers.EinsumDense)
_FREE: tuple[type[layers.Layer], ...] = (
    layers.Concatenate,
    layers.Cropping2D,
    layers.Dropout,
    layers.Flatten,
    layers.Permute,
    layers.Reshape,
    layers.ZeroPadding2D,
)


def micronet_score(model: keras.Model) -> MicroNetScore | None:
    """Return the score by the MicroNet challenge's rules for 32-bit models; None if a layer is not covered by them.

    The count follows the organisers' own script (google-research/micronet_challenge/counting.py):

    - Storage: every number that inference needs, 32 bits as 1: kernels, biases, the mean and deviation of the input.
      A batch norm directly after a convolution is folded into it: the scale goes into the kernel, and one offset per
      channel remains. Other batch norms keep both. A constant scale of the logits is folded into the classifier.
    - Operations: multiplications and additions each as one. A sum of n products is n multiplications and n - 1
      additions; an offset is one addition, a ReLU one operation, an average of n values n - 1 additions and one
      multiplication, the largest of n values n - 1 operations, a residual addition one; normalising a pixel is one of
      each, and so is a batch norm that is not folded. A softmax over n values is n exponentials, n - 1 additions and n
      divisions. A layer norm over n values is 2 n for its mean and for centring, 2 n for the variance, 3 n for three
      scales and offsets, and 2 for the deviation.

    The challenge's "freebie" is not used; it counts an unquantised model as if it had 16 bits (half the storage and
    multiplications). No model here is sparse or quantised.
    """
    calls = list(calls_of(model))
    operations = total([_operations(call) for call in calls])
    if operations is None:
        return None
    storage = sum({id(call.layer): _inference_values(call) for call in calls}.values())
    storage_share, operations_share = storage / WIDE_RESNET_STORAGE, operations / WIDE_RESNET_OPERATIONS
    return MicroNetScore(
        storage=storage,
        operations=operations,
        storage_share=storage_share,
        operations_share=operations_share,
        score=storage_share + operations_share,
    )


def _is_folded(call: Call) -> bool:
    """Return whether a batch norm directly follows convolutions or dense layers, and is folded into them."""
    return all(
        stock(source) in _KERNELS and keras.activations.serialize(source.activation) == "linear"
        for source in call.sources
    )


def _normalises(call: Call) -> bool:
    return stock(call.layer) is layers.Rescaling and all(type(each) is layers.InputLayer for each in call.sources)


def _inference_values(call: Call) -> int:
    """Count the numbers that must be stored for inference."""
    if _normalises(call):
        return 2 * call.outputs[0][-1]
    if stock(call.layer) is layers.BatchNormalization:
        return call.inputs[0][call.layer.axis - (call.layer.axis > 0)] * (1 if _is_folded(call) else 2)
    return sum(math.prod(variable.shape) for variable in getattr(call.layer, "weights", ()))


def _operations(call: Call) -> int | None:
    """Count multiplications and additions for one example; None if the rules do not cover the layer."""
    count = _OPERATIONS.get(stock(call.layer))
    if count is not None:
        return count(call) if call.is_sized else None
    return 0 if stock(call.layer) in _FREE else None


def _products(call: Call) -> int | None:
    """Count the operations of sums of n products: n - 1 additions each, and one more with a bias."""
    products, activation = multiply_adds(call), _activation(call)
    if products is None or activation is None:
        return None
    has_bias = getattr(call.layer, "bias", None) is not None
    return 2 * products - call.values_out * (not has_bias) + activation


def _activation(call: Call) -> int | None:
    name = keras.activations.serialize(call.layer.activation)
    each = _ACTIVATIONS.get(name) if isinstance(name, str) else None
    return None if each is None else each * call.values_out


def _attention(call: Call) -> int | None:
    layer, products = call.layer, multiply_adds(call)
    if products is None:
        return None
    queries, keys = math.prod(call.inputs[0][:-1]), math.prod(call.inputs[1][:-1])
    keyed, valued = layer.num_heads * layer.key_dim, layer.num_heads * layer.value_dim
    rows = layer.num_heads * queries
    projected = queries * keyed + keys * (keyed + valued) + call.values_out
    scaled, softmax = queries * keyed, rows * (3 * keys - 1)
    return 2 * products - rows * keys - queries * valued - projected * (not layer.use_bias) + scaled + softmax


def _layer_norm(call: Call) -> int:
    values = math.prod(call.layer.gamma.shape) if call.layer.scale else call.inputs[0][-1]
    return 7 * call.values_in + 2 * call.values_in // values


def _rescaling(call: Call) -> int:
    if _normalises(call):
        return 2 * call.values_out
    return 0 if _is_folded(call) else call.values_out * (1 + bool(call.layer.offset))


def _pooled(call: Call) -> int:
    return math.prod(call.layer.pool_size) * call.values_out


_OPERATIONS: dict[object, Callable[[Call], int | None]] = {
    **dict.fromkeys(_KERNELS, _products),
    layers.MultiHeadAttention: _attention,
    layers.BatchNormalization: lambda call: call.values_out * (1 if _is_folded(call) else 2),
    layers.LayerNormalization: _layer_norm,
    layers.Rescaling: _rescaling,
    layers.Activation: _activation,
    layers.ReLU: lambda call: call.values_out,
    layers.Add: lambda call: call.values_in - call.values_out,
    layers.MaxPooling2D: lambda call: _pooled(call) - call.values_out,
    layers.AveragePooling2D: _pooled,
    layers.GlobalMaxPooling2D: lambda call: call.values_in - call.values_out,
    layers.GlobalMaxPooling1D: lambda call: call.values_in - call.values_out,
    layers.GlobalAveragePooling2D: lambda call: call.values_in,
    layers.GlobalAveragePooling1D: lambda call: call.values_in,
}
