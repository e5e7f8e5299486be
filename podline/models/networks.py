"""From a recipe's model settings to the layers of its network."""

from __future__ import annotations

from podline.errors import SettingsError
from podline.models.linear import linear_layers
from podline.models.mobilenetv2 import mobilenetv2_layers
from podline.models.network import Network
from podline.models.resnet import resnet_layers
from podline.recipes.settings import ModelSettings


def network_for(settings: ModelSettings, image_shape: tuple[int, int, int], classes: int) -> Network:
    """The network of a recipe, as plain data.

    Args:
        settings: which kind, how wide, how deep.
        image_shape: (height, width, channels).
        classes: number of logits.

    Raises:
        SettingsError: a prefix in ``l2_layers`` fits no layer, or an image or a number of classes that cannot be.
    """
    if len(image_shape) != 3 or min(image_shape) < 1 or classes < 2:
        raise SettingsError(
            f"image shape {image_shape}, {classes} classes: a model needs (height, width, channels), all from 1, "
            "and 2 or more classes"
        )
    match settings.kind:
        case "linear":
            layers = tuple(linear_layers(settings, classes))
        case "resnet":
            layers = tuple(resnet_layers(settings, classes))
        case "mobilenetv2":
            layers = tuple(mobilenetv2_layers(settings, image_shape, classes))
        case other:
            raise SettingsError(f"model {other} is none of Podline's own")
    network = Network(image_shape, layers)
    network.layers_named(settings.l2_layers)
    return network
