from __future__ import annotations

import keras
import pytest

from podline.errors import SettingsError
from podline.models import mobilenetv2
from podline.models.blocks import make_divisible
from podline.models.build import build_model
from podline.recipes.settings import ModelSettings

SMALL = (32, 32, 3)


def network(image_shape: tuple[int, int, int] = SMALL, classes: int = 10, **settings: object) -> keras.Model:
    channels = image_shape[-1]
    return build_model(ModelSettings.model_validate(settings), image_shape, classes, [0.0] * channels, [1.0] * channels)


@pytest.mark.parametrize(("channels", "rounded"), [(32, 32), (11.2, 16), (33.6, 32), (8.4, 8), (18.4, 24), (1, 8)])
def test_channels_are_rounded_to_eights_and_never_lose_a_tenth(channels: float, rounded: int) -> None:
    assert make_divisible(channels) == rounded


@pytest.mark.parametrize(
    ("side", "halvings"), [(224, 5), (128, 5), (96, 4), (64, 4), (32, 3), (28, 3), (16, 2), (3, 0)]
)
def test_mobilenetv2_leaves_out_the_first_halvings_of_small_images(side: int, halvings: int) -> None:
    assert mobilenetv2._strides(side) == [1] * (5 - halvings) + [2] * halvings


def test_a_bottleneck_adds_its_input_exactly_where_nothing_changes_shape_and_the_first_of_five_halve() -> None:
    model = network((64, 64, 3), kind="mobilenetv2", width=0.35)
    added = [layer.name for layer in model.layers if layer.name.endswith("_add")]
    assert added == [f"block{number:02d}_add" for number in (3, 5, 6, 8, 9, 10, 12, 13, 15, 16)]
    halving = [layer.name for layer in model.layers if getattr(layer, "strides", None) == (2, 2)]
    assert halving == [f"block{number:02d}_depthwise_conv" for number in (2, 4, 7, 14)]


def test_odd_sizes_round_up_when_halved() -> None:
    model = network((7, 9, 3))
    assert [model.get_layer(f"stage{stage}_pool").output.shape[1:3] for stage in (1, 2)] == [(4, 5), (2, 3)]


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("fc", r"no layer's name starts with 'fc'; the layers are stem_conv, .*, classifier$"),
        ("stem_norm", "stem_norm"),  # which has no kernel
    ],
)
def test_a_prefix_of_no_kernel_is_refused(prefix: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        network(l2=1e-4, l2_layers=("classifier", prefix))


@pytest.mark.parametrize(
    ("shape", "outputs", "words"),
    [((0, 32, 3), 10, "10 outputs"), (SMALL, 0, "0 outputs"), (SMALL, 10, "mean of 1 and deviation of 1 channels vs")],
)
def test_images_and_outputs_that_cannot_be(shape: tuple[int, int, int], outputs: int, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        build_model(ModelSettings(), shape, outputs, [0.0], [1.0])


def test_a_resnet_with_gelu_has_no_relu() -> None:
    layers = network(activation="gelu").layers
    assert {layer.activation.__name__ for layer in layers if isinstance(layer, keras.layers.Activation)} == {"gelu"}
    assert not any(isinstance(layer, keras.layers.ReLU) for layer in layers)
    with pytest.raises(ValueError, match="got activation=gelu with kind=linear, expected kind=resnet"):
        ModelSettings(kind="linear", activation="gelu")
