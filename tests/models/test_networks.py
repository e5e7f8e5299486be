from __future__ import annotations

import pytest

from podline.errors import SettingsError
from podline.models.network import Convolution, DepthwiseConvolution, MaxPool, make_divisible
from podline.models.networks import network_for
from podline.recipes.settings import ModelSettings

SMALL = (32, 32, 3)


@pytest.mark.parametrize(
    ("channels", "rounded"), [(32, 32), (11.2, 16), (33.6, 32), (8.4, 8), (5.6, 8), (18.4, 24), (1, 8), (1792, 1792)]
)
def test_channels_are_rounded_to_eights_and_never_lose_a_tenth(channels: float, rounded: int) -> None:
    assert make_divisible(channels) == rounded


@pytest.mark.parametrize(
    ("side", "halvings"), [(224, 5), (128, 5), (96, 4), (64, 4), (32, 3), (28, 3), (16, 2), (3, 0)]
)
def test_mobilenetv2_leaves_out_the_first_halvings_of_small_images(side: int, halvings: int) -> None:
    network = network_for(ModelSettings(kind="mobilenetv2"), (side, side, 3), 10)
    strides = [
        layer.stride
        for layer in network.layers
        if isinstance(layer, Convolution | DepthwiseConvolution) and layer.name.startswith(("stem", "block"))
        if layer.kernel == 3 and layer.name.split("_")[0] in {"stem", "block02", "block04", "block07", "block14"}
    ]
    assert strides == [1] * (5 - halvings) + [2] * halvings


def test_a_bottleneck_adds_its_input_exactly_where_nothing_changes_shape() -> None:
    network = network_for(ModelSettings(kind="mobilenetv2"), (224, 224, 3), 10)
    added = [layer.name for layer in network.layers if layer.name.endswith("_add")]
    assert added == [f"block{number:02d}_add" for number in (3, 5, 6, 8, 9, 10, 12, 13, 15, 16)]


def test_odd_sizes_round_up_when_halved() -> None:
    assert Convolution("c", filters=4, kernel=3, stride=2).output_shape((7, 9, 3)) == (4, 5, 4)
    assert MaxPool("p", size=2).output_shape((7, 9, 3)) == (4, 5, 3)


@pytest.mark.parametrize("kind", ["linear", "resnet", "mobilenetv2"])
def test_names_are_unique_and_inputs_come_before_their_readers(kind: str) -> None:
    network = network_for(ModelSettings.model_validate({"kind": kind, "depth": 3}), SMALL, 10)
    seen: list[str] = []
    for layer, inputs in network.wired():
        assert set(inputs) <= set(seen)
        assert bool(inputs) == bool(seen)
        seen.append(layer.name)
    assert len(set(seen)) == len(seen)
    last, shape = list(network.shaped())[-1]
    assert last.output_shape(shape) == (10,)


def test_layers_that_are_added_have_one_shape() -> None:
    for kind in ("resnet", "mobilenetv2"):
        network = network_for(ModelSettings.model_validate({"kind": kind, "depth": 2}), (28, 28, 1), 10)
        shapes = {layer.name: layer.output_shape(shape) for layer, shape in network.shaped()}
        for layer, inputs in network.wired():
            assert len({shapes[name] for name in inputs}) <= 1, layer


def test_a_prefix_that_fits_no_layer_names_the_layers() -> None:
    with pytest.raises(SettingsError, match=r"no layer's name starts with 'fc'; there are stem_conv, .*, classifier$"):
        network_for(ModelSettings(l2=1e-4, l2_layers=("classifier", "fc")), SMALL, 10)


def test_a_prefix_of_layers_without_a_kernel_is_refused() -> None:
    with pytest.raises(SettingsError, match="stem_norm"):
        network_for(ModelSettings(l2=1e-4, l2_layers=("stem_norm",)), SMALL, 10)


def test_prefixes_choose_the_kernels() -> None:
    settings = ModelSettings(depth=2, l2=1e-4, l2_layers=("classifier", "stage2_block02"))
    chosen = network_for(settings, SMALL, 10).layers_named(settings.l2_layers)
    assert chosen == {"classifier", "stage2_block02_conv"}


@pytest.mark.parametrize(("shape", "classes"), [((32, 32), 10), ((0, 32, 3), 10), (SMALL, 1)])
def test_images_and_classes_that_cannot_be(shape: tuple[int, ...], classes: int) -> None:
    with pytest.raises(SettingsError, match=f"{classes} classes"):
        network_for(ModelSettings(), shape, classes)  # pyright: ignore[reportArgumentType]
