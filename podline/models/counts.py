"""What a model costs, computed from its plan alone: no TensorFlow, no weights, no example.

The MicroNet challenge (NeurIPS 2019, https://micronet-challenge.github.io) ranked CIFAR-100 models by what inference
needs, relative to WideResNet-28-10. :func:`micronet_score` says what is counted here.
"""

from __future__ import annotations

import math

from podline.frozen import Frozen
from podline.models.network import (
    Add,
    BatchNorm,
    Convolution,
    Dense,
    DepthwiseConvolution,
    GlobalAveragePool,
    GlobalMaxPool,
    Layer,
    MaxPool,
    Network,
    Normalise,
    Projection,
    Relu,
    Shape,
)
from podline.models.networks import network_for
from podline.models.pose import pose_network
from podline.recipes.settings import ModelSettings, Recipe

BYTES_PER_PARAMETER = 4  # float32
CIFAR100_IMAGE, CIFAR100_CLASSES = (32, 32, 3), 100
WIDE_RESNET_STORAGE = 36.5e6
WIDE_RESNET_OPERATIONS = 10.49e9


class LayerDescription(Frozen):
    """One layer.

    Attributes:
        name: the layer's name, in the Keras model as well.
        kind: what it is: ``Convolution``, ``BatchNorm`` …
        output_shape: (height, width, channels) or (values,).
        parameters: numbers stored with the model, trained or averaged.
        trainable_parameters: those that have a gradient.
        bytes: of the parameters as float32.
        multiply_adds: for one example; convolutions and dense layers only, as papers count.
    """

    name: str
    kind: str
    output_shape: tuple[int, ...]
    parameters: int
    trainable_parameters: int
    bytes: int
    multiply_adds: int


class MicroNetScore(Frozen):
    """The score of the MicroNet challenge, lower is better; WideResNet-28-10 is 1 + 1 = 2.

    Attributes:
        storage: 32-bit numbers that inference needs.
        operations: multiplications and additions for one example, each counted as one.
        storage_share: storage relative to WideResNet-28-10's 36.5 million.
        operations_share: operations relative to its 10.49 billion.
        score: the sum of both shares.
    """

    storage: int
    operations: int
    storage_share: float
    operations_share: float
    score: float


class ModelDescription(Frozen):
    """A model's layers and their sums; ``micronet`` is given for models of CIFAR-100's images and classes.

    Attributes:
        kind: as in the settings; ``pose`` for a pose network.
        image_shape: (height, width, channels).
        classes: number of logits; 0 where the answers are maps.
        layers: in the order in which they are computed.
        parameters: sum over the layers.
        trainable_parameters: sum over the layers.
        bytes: of all the parameters as float32.
        trainable_bytes: of the trainable ones.
        multiply_adds: sum over the layers, for one example.
        micronet: the challenge's score, or None.
    """

    kind: str
    image_shape: tuple[int, int, int]
    classes: int
    layers: tuple[LayerDescription, ...]
    parameters: int
    trainable_parameters: int
    bytes: int
    trainable_bytes: int
    multiply_adds: int
    micronet: MicroNetScore | None


def describe(settings: ModelSettings, image_shape: tuple[int, int, int], classes: int) -> ModelDescription:
    """What the model of these settings is made of and costs.

    Args:
        settings: which kind, how wide, how deep.
        image_shape: (height, width, channels).
        classes: number of logits.

    Raises:
        SettingsError: the settings fit no model, see :func:`podline.models.networks.network_for`.
    """
    network = network_for(settings, image_shape, classes)
    is_cifar100 = image_shape == CIFAR100_IMAGE and classes == CIFAR100_CLASSES
    return _described(settings.kind, network, classes, micronet_score(network) if is_cifar100 else None)


def describe_classifier(recipe: Recipe, image_shape: tuple[int, int, int], classes: int) -> ModelDescription:
    """A classifier's model; see :func:`describe`."""
    return describe(recipe.model, image_shape, classes)


def describe_pose_network(recipe: Recipe, _image_shape: tuple[int, int, int], _classes: int) -> ModelDescription:
    """A pose recipe's network, of which the recipe says all itself."""
    poses = recipe.poses
    return _described("pose", pose_network(poses.model, poses.side, poses.targets.stride), 0, None)


def _described(kind: str, network: Network, classes: int, micronet: MicroNetScore | None) -> ModelDescription:
    layers = tuple(_describe_layer(layer, shape) for layer, shape in network.shaped())
    parameters = sum(layer.parameters for layer in layers)
    trainable = sum(layer.trainable_parameters for layer in layers)
    return ModelDescription(
        kind=kind,
        image_shape=network.image_shape,
        classes=classes,
        layers=layers,
        parameters=parameters,
        trainable_parameters=trainable,
        bytes=parameters * BYTES_PER_PARAMETER,
        trainable_bytes=trainable * BYTES_PER_PARAMETER,
        multiply_adds=sum(layer.multiply_adds for layer in layers),
        micronet=micronet,
    )


def _describe_layer(layer: Layer, shape: Shape) -> LayerDescription:
    trainable = layer.trainable_parameters(shape)
    parameters = trainable + layer.fixed_parameters(shape)
    return LayerDescription(
        name=layer.name,
        kind=type(layer).__name__,
        output_shape=layer.output_shape(shape),
        parameters=parameters,
        trainable_parameters=trainable,
        bytes=parameters * BYTES_PER_PARAMETER,
        multiply_adds=layer.multiply_adds(shape),
    )


def micronet_score(network: Network) -> MicroNetScore:
    """The score of the MicroNet challenge, by its rules for 32-bit models.

    Counted, as the organisers' own script does (google-research/micronet_challenge/counting.py):

    - Storage: every number that inference needs, 32 bits as 1: kernels, biases, the mean and deviation of the input.
      A batch norm right after a convolution is folded into it: the kernel takes the scale in, one offset a channel is
      left. One elsewhere keeps both. A constant scale of the logits is folded into the classifier.
    - Operations: multiplications and additions each as one. A sum of n products is n multiplications and n - 1
      additions; an offset is one addition, a ReLU one operation, an average of n values n - 1 additions and one
      multiplication, the largest of n values n - 1 operations, a residual addition one; normalising a pixel is one of
      each, and so is a batch norm that is not folded.

    Not used: the challenge's "freebie", by which a model that is not quantised may be counted as if it had 16 bits
    (storage and multiplications halved). Nothing here is sparse or quantised.
    """
    layers = list(network.shaped())
    folded = _folded_norms(network)
    storage = sum(_inference_values(layer, shape, folded) for layer, shape in layers)
    operations = sum(_operations(layer, shape, folded) for layer, shape in layers)
    storage_share, operations_share = storage / WIDE_RESNET_STORAGE, operations / WIDE_RESNET_OPERATIONS
    return MicroNetScore(
        storage=storage,
        operations=operations,
        storage_share=storage_share,
        operations_share=operations_share,
        score=storage_share + operations_share,
    )


def _folded_norms(network: Network) -> frozenset[str]:
    """The batch norms that read a convolution, and so vanish into it."""
    convolutions = {
        layer.name for layer in network.layers if isinstance(layer, Convolution | DepthwiseConvolution | Dense)
    }
    return frozenset(
        layer.name
        for layer, inputs in network.wired()
        if isinstance(layer, BatchNorm) and convolutions.issuperset(inputs)
    )


def _inference_values(layer: Layer, shape: Shape, folded: frozenset[str]) -> int:
    """Numbers that must be stored for inference."""
    match layer:
        case Normalise():
            return 2 * shape[-1]
        case BatchNorm():
            return shape[-1] * (1 if layer.name in folded else 2)
        case _:
            return layer.trainable_parameters(shape)


def _operations(layer: Layer, shape: Shape, folded: frozenset[str]) -> int:
    """Multiplications and additions for one example."""
    outputs = math.prod(layer.output_shape(shape))
    match layer:
        case Convolution() | DepthwiseConvolution():
            unbiased = 2 * layer.multiply_adds(shape) - outputs
            return unbiased + outputs * (isinstance(layer, Convolution) and layer.bias)
        case Dense() | Projection():
            return 2 * layer.multiply_adds(shape)  # the bias is the addition that a sum of n products saves
        case BatchNorm() if layer.name not in folded:
            return 2 * outputs
        case BatchNorm() | Relu() | Add():
            return outputs
        case Normalise():
            return 2 * outputs
        case MaxPool():
            return outputs * (layer.size**2 - 1)
        case GlobalMaxPool():
            return math.prod(shape) - outputs
        case GlobalAveragePool():
            return math.prod(shape)
        case _:
            return 0
