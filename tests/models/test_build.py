"""A network is built as its settings say, in either precision and data format, and refused where it cannot be."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from podline.base.errors import SettingsError
from podline.models import mobilenetv2, precision
from podline.models.batch_layers import FusedBatchNormalization
from podline.models.build import build_model
from podline.models.layer_copies import exportable
from podline.models.precision import cpu_flags, policy
from podline.recipes.settings import ModelSettings

SMALL = (32, 32, 3)
MEAN, STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *SMALL), dtype=np.uint8)


def small_model(seed: int = 0, **settings: object) -> keras.Model:
    return build_model(ModelSettings.model_validate({"width": 0.25, **settings}), SMALL, 10, MEAN, STD, seed)


def test_pixels_are_normalised_inside() -> None:
    model = build_model(ModelSettings(kind="linear"), SMALL, 10, MEAN, (*STD[:2], 0.0))
    pixels = images(3)
    normalised = keras.Model(model.input, model.get_layer("normalise").output)(pixels)
    expected = (pixels - np.array(MEAN)) / np.array((*STD[:2], 1.0))  # a channel that never varies is only centred
    np.testing.assert_allclose(normalised, expected, rtol=0, atol=1e-4)  # float32 of values up to 140
    logits = model(pixels)
    assert (model.input.dtype, logits.dtype) == ("uint8", "float32")
    kernel, bias = model.get_layer("classifier").get_weights()
    np.testing.assert_allclose(logits, expected.reshape(3, -1) @ kernel + bias, rtol=0, atol=1e-2)


def test_l2_is_on_the_named_layers_only() -> None:
    model = small_model(l2=0.5, l2_layers=("classifier", "stage1"))
    kernels = [variable for variable in model.trainable_variables if variable.name == "kernel"]
    chosen = [kernel for kernel in kernels if kernel.path.startswith(("classifier", "stage1"))]
    assert len(chosen) == 3 < len(kernels)
    expected = sum(0.5 * float((kernel.numpy() ** 2).sum()) for kernel in chosen)
    assert float(sum(model.losses)) == pytest.approx(expected, rel=1e-5)
    assert small_model().losses == []


def test_batch_norm_is_keras_batch_norm() -> None:
    batch = np.random.default_rng(1).normal(3, 2, (4, 5, 5, 6)).astype(np.float32)
    ours, theirs = FusedBatchNormalization(momentum=0.75), keras.layers.BatchNormalization(momentum=0.75)
    for layer in (ours, theirs):
        layer.build(batch.shape)
        layer.gamma.assign(np.arange(1, 7))
        layer.beta.assign(np.arange(6))
    # Two orders of summing float32: a few units in the last place of values up to 20.
    np.testing.assert_allclose(ours(batch, training=True), theirs(batch, training=True), rtol=0, atol=1e-4)
    np.testing.assert_allclose(ours.moving_mean, theirs.moving_mean, rtol=1e-5)
    unbiased = 0.75 + 0.25 * batch.var((0, 1, 2), ddof=1)
    np.testing.assert_allclose(ours.moving_variance, unbiased, rtol=1e-5)
    theirs.moving_variance.assign(ours.moving_variance)
    np.testing.assert_allclose(ours(batch), theirs(batch), rtol=0, atol=1e-4)


def test_the_export_is_made_of_keras_own_parts(tmp_path: Path) -> None:
    model = small_model(dropout=0.5)
    pixels = images(5)
    for _ in range(3):
        model(pixels, training=True)  # moving averages that are not the initial ones
    file = tmp_path / "model.keras"
    exportable(model).save(file)
    with zipfile.ZipFile(file) as archive:
        assert set(re.findall(r'"module": "(\w+)', archive.read("config.json").decode())) == {"keras"}
    found = keras.models.load_model(file)
    assert (found.input.dtype, found.count_params()) == ("uint8", model.count_params())
    # Another order of float32 operations in each norm, through six of them.
    np.testing.assert_allclose(found(pixels), model(pixels), rtol=0, atol=1e-4)


def test_channels_first_is_refused_by_name_without_a_gpu() -> None:
    with pytest.raises(SettingsError, match=r"data_format=channels_first needs a GPU, but the devices are .*CPU:0"):
        small_model(data_format="channels_first")


@pytest.mark.usefixtures("few_layers_once")
@pytest.mark.parametrize("kind", ["resnet", "mobilenetv2"])
def test_channels_first_builds_with_the_same_weights(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    last = small_model(kind=kind)
    monkeypatch.setattr("tensorflow.config.list_logical_devices", lambda *_kind: ["a GPU"])
    first = small_model(kind=kind, data_format="channels_first")
    assert [w.shape for w in first.get_weights()] == [w.shape for w in last.get_weights()]
    height, width, channels = last.get_layer("stem_conv").output.shape[1:]
    assert first.get_layer("stem_conv").output.shape[1:] == (channels, height, width)


@pytest.mark.parametrize(("side", "halvings"), [(224, 5), (96, 4), (28, 3), (16, 2), (3, 0)])
def test_mobilenetv2_leaves_out_the_first_halvings_of_small_images(side: int, halvings: int) -> None:
    assert mobilenetv2._strides(side) == [1] * (5 - halvings) + [2] * halvings


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("fc", r"no layer's name starts with 'fc'; the layers are stem_conv, .*, classifier$"),
        ("stem_norm", "stem_norm"),  # which has no kernel
    ],
)
def test_a_prefix_of_no_kernel_is_refused(prefix: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        small_model(l2=1e-4, l2_layers=("classifier", prefix))


@pytest.mark.parametrize(
    ("outputs", "words"), [(0, "0 outputs"), (10, "a mean of 2 and a deviation of 2 channels, expected")]
)
def test_images_and_outputs_that_cannot_be_are_refused(outputs: int, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        build_model(ModelSettings(), SMALL, outputs, [0.0] * 2, [1.0] * 2)


@pytest.mark.parametrize("kind", ["resnet", "linear"])
def test_layers_compute_in_bfloat16_but_for_the_last_and_weights_are_float32(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "cpu_flags", lambda: {"avx512_bf16"})  # TensorFlow emulates it where it has to
    model = build_model(ModelSettings(kind=kind), SMALL, 10, MEAN, STD, 0, "bfloat16")
    last = next(place for place, layer in enumerate(model.layers) if layer.name == "classifier")
    inner = [layer for layer in model.layers[:last] if layer.name not in ("image", "normalise")]
    assert {layer.compute_dtype for layer in inner} <= {"bfloat16"}
    assert {layer.compute_dtype for layer in model.layers[last:]} == {"float32"}
    assert {variable.dtype for variable in model.variables} == {"float32"}
    assert model(images(16)).dtype == "float32"


def test_a_processor_without_it_is_refused_by_name_and_auto_takes_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "cpu_flags", lambda: {"avx512f"})
    with pytest.raises(SettingsError, match="precision=bfloat16 vs a processor without AVX512_BF16 or AMX"):
        policy("bfloat16")
    assert policy("auto") == "float32"
    monkeypatch.setattr(precision, "cpu_flags", lambda: {"avx512_bf16"})
    assert (policy("auto"), policy("float32")) == ("mixed_bfloat16", "float32")


def test_what_a_processor_has_is_read_from_linux(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    assert cpu_flags(file) == set()
    file.write_text("processor\t: 0\nflags\t\t: fpu avx512_bf16 amx_bf16\nbugs\t: spectre\n")
    assert cpu_flags(file) == {"fpu", "avx512_bf16", "amx_bf16"}
