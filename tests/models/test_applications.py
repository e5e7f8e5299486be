"""Networks with published weights, or those of files, have their publishers' features and answers."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import applications

from podline.base.errors import ArtifactError, SettingsError
from podline.models import efficientnet_lite
from podline.models.batch_layers import BatchDropout
from podline.models.build import build_model
from podline.models.counts import described
from podline.models.efficientnet_lite import STAGES, from_pytorch
from podline.models.keras_internals import fresh_names
from podline.models.layer_copies import exportable
from podline.models.normalisation import Pixels, pixels_of
from podline.models.published_weights import published_layers
from podline.models.weights_files import Layers, read_weights
from podline.recipes.published_weights import PUBLISHED, Pretrained
from podline.recipes.settings import InitSettings, ModelSettings, OptimizerSettings
from podline.store.opening import open_store
from podline.training import devices
from podline.training.initial_weights import take_weights
from podline.training.state import TrainingState

SHAPE = (32, 32, 3)
KERAS = {
    "mobilenetv3-small": applications.MobileNetV3Small,
    "mobilenetv3-large": applications.MobileNetV3Large,
    "efficientnetv2-b0": applications.EfficientNetV2B0,
    "convnext-tiny": applications.ConvNeXtTiny,
}
# float32: the normalisation is one multiplication and addition here, and two of each in Keras.
TOLERANCE = 1e-5


def network(kind: str, shape: tuple[int, int, int] = SHAPE, **settings: object) -> keras.Model:
    chosen = ModelSettings.model_validate({"kind": kind, **settings})
    return build_model(chosen, shape, 5, [9.0] * shape[2], [2.0] * shape[2])


@functools.cache
def published(kind: str) -> keras.Model:
    """Keras's own model with weights of chance."""
    # Whoever published the weights had built nothing before.
    with fresh_names():
        model = KERAS[kind](input_shape=SHAPE, include_top=False, weights=None, pooling="avg")
    chance = np.random.default_rng(0)
    around = [float(variable.name in {"gamma", "moving_variance", "variable"}) for variable in model.weights]
    model.set_weights([chance.normal(a, 0.05, w.shape) for a, w in zip(around, model.get_weights(), strict=True)])
    return model


def from_keras2(model: keras.Model, file: str) -> None:
    """Convert a file of Keras 2 as docs/how-to/fine-tune.md does."""
    old = str(Path(file).with_name("old.h5"))
    keras.src.legacy.saving.legacy_h5_format.save_model_to_hdf5(model, old)
    model.load_weights(old)
    model.save_weights(file)


def from_saved_model(model: keras.Model, file: str) -> None:
    """Convert a SavedModel as docs/how-to/fine-tune.md does."""
    saved = str(Path(file).with_name("saved"))
    model.export(saved, verbose=False)
    np.savez(file, **{each.name.removesuffix(":0"): each.numpy() for each in tf.saved_model.load(saved).variables})


SAVE = {
    "model.keras": lambda model, file: model.save(file),
    "model.weights.h5": lambda model, file: model.save_weights(file),
    "model.npz": lambda model, file: np.savez(file, **{each.path: each.numpy() for each in model.weights}),
    "new.weights.h5": from_keras2,
    "new.npz": from_saved_model,
}
SMALL, *LARGER = KERAS


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(pytest.param(SMALL, name, marks=pytest.mark.slow) for name in SAVE),
        *(pytest.param(kind, "new.weights.h5", marks=pytest.mark.slow) for kind in LARGER),
    ],
)
def test_with_the_weights_of_a_file_features_are_those_of_keras(tmp_path: Path, kind: str, name: str):
    keras_model, model, file = published(kind), network(kind), tmp_path / name
    SAVE[name](keras_model, str(file))
    require_features(model, read_weights(file), keras_model)


def require_features(model: keras.Model, layers: Layers, keras_model: keras.Model):
    state = TrainingState(model, OptimizerSettings(kind="sgd", momentum=0.0), average_decay=0.9)
    taken = take_weights(state, InitSettings(file="given"), layers)
    assert (taken.missing, taken.other_shape, taken.unused) == (("classifier",), (), ())
    images = np.random.default_rng(1).integers(0, 256, (3, *SHAPE), dtype=np.uint8)
    expected = np.asarray(keras_model(images.astype(np.float32), training=False))
    assert np.std(expected) > 1000 * TOLERANCE
    for trained in (model, state.average):
        features = keras.Model(trained.input, trained.get_layer("classifier").input)
        assert np.allclose(features(images, training=False), expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("kind", KERAS)
def test_addresses_and_checksums_are_those_of_keras(kind: str, monkeypatch: pytest.MonkeyPatch):
    def get_file(file: str, address: str, *, file_hash: str, **_: str):
        published = PUBLISHED[kind]
        assert (file, address, file_hash) == (published.file, published.source, published.checksum)
        raise FileNotFoundError

    monkeypatch.setattr("keras.src.utils.file_utils.get_file", get_file)
    with pytest.raises(FileNotFoundError):
        KERAS[kind](input_shape=(224, 224, 3), include_top=False)


@pytest.mark.parametrize("kind", [SMALL, *(pytest.param(kind, marks=pytest.mark.slow) for kind in LARGER)])
def test_published_weights_are_downloaded_once_and_give_the_features_of_keras(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    keras_model, model, store = published(kind), network(kind), open_store(str(tmp_path / "store"))
    file = tmp_path / PUBLISHED[kind].file
    with h5py.File(file, "w") as h5:
        keras.src.legacy.saving.legacy_h5_format.save_weights_to_hdf5_group(h5, keras_model)
    md5 = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
    address = "http://127.0.0.1:9/weights.h5"  # nothing answers there
    monkeypatch.setitem(PUBLISHED, kind, PUBLISHED[kind]._replace(source=address, checksum=md5))
    with pytest.raises(SettingsError, match=rf"cannot download {file.name} .*; put the file at \S*/{md5}/{file.name}"):
        published_layers(store, Pretrained(kind), md5)
    monkeypatch.setattr(keras.utils, "get_file", lambda *_, **__: str(file))
    published_layers(store, Pretrained(kind), md5)
    file.unlink()
    require_features(model, published_layers(store, Pretrained(kind), md5), keras_model)


def test_ones_own_network_gets_the_normalisation_of_its_weights():
    data = Pixels((9.0, 8.0, 7.0), (2.0, 3.0, 4.0))
    assert pixels_of(ModelSettings(kind="my-vit"), data, 3) == data
    with pytest.raises(SettingsError, match=r"normalisation=imagenet: got images of 1 channels, expected 3; give"):
        pixels_of(ModelSettings(kind="my-vit", normalisation="imagenet"), Pixels((9.0,), (2.0,)), 1)
    given = network("mobilenetv3-small", normalisation="data").get_layer("normalise").get_config()
    assert given["scale"] == [0.5] * 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KERAS)
def test_exported_it_is_plain_keras_and_all_multiply_adds_are_known(kind, tmp_path):
    model = network(kind)
    assert not described(model).uncounted
    exportable(model).save(tmp_path / "model.keras")
    found = keras.models.load_model(tmp_path / "model.keras", compile=False)
    images = np.random.default_rng(1).integers(0, 256, (3, *SHAPE), dtype=np.uint8)
    assert np.allclose(found(images, training=False), model(images, training=False), atol=1e-4)


@pytest.mark.parametrize(("height", "channels"), [(31, 3), (64, 2)])
def test_images_that_are_too_small_or_of_other_channels_are_refused(height: int, channels: int):
    with pytest.raises(SettingsError, match=rf"{height} × 64 × {channels} vs at least 32 × 32 × 3"):
        network("convnext-tiny", (height, 64, channels))


def test_whole_paths_are_dropped_alike_whatever_the_number_of_replicas():
    def dropped(strategy: str) -> np.ndarray:
        made = devices.prepare(0, deterministic=False, strategy=strategy)
        with made.scope():
            layer = BatchDropout(0.5, noise_shape=(None, 1, 1, 1), seed=3)
        maps = tf.ones((8 // made.num_replicas_in_sync, 2, 2, 3))
        answers = tf.function(lambda: made.run(lambda: layer(maps, training=True)))()
        return made.gather(answers, axis=0).numpy()

    one, two = dropped("cpu"), dropped("cpu:2")
    assert np.array_equal(one, two)
    assert {tuple(np.unique(each)) for each in one} == {(0.0,), (2.0,)}


LITE = PUBLISHED["efficientnet-lite0"]
STRIDES = [stride if not block else 1 for blocks, _, stride, *_ in STAGES for block in range(blocks)]
# float32 over fifty layers, whose order of additions differs.
LITE_TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def file() -> Path:
    [found] = [part for part in importlib.metadata.files(LITE.source) if part.name == LITE.file]
    return Path(found.locate())


@pytest.fixture(scope="module")
def tensors(file: Path) -> Layers:
    return read_weights(file, (".pth",))


def plainly(tensors: Layers, images: np.ndarray) -> np.ndarray:
    """The logits by TensorFlow's operations, from PyTorch's names and orders of axes."""

    def convolved(maps, conv: str, norm: str, stride: int = 1, limit: float | None = 6.0):
        kernel, of = tensors[conv]["weight"].transpose(2, 3, 1, 0), tensors[norm]
        if conv.endswith("_depthwise_conv"):
            kernel = kernel.transpose(0, 1, 3, 2)
            maps = tf.nn.depthwise_conv2d(maps, kernel, [1, stride, stride, 1], "SAME")
        else:
            maps = tf.nn.conv2d(maps, kernel, stride, "SAME")
        maps = (maps - of["running_mean"]) / np.sqrt(of["running_var"] + 1e-3) * of["weight"] + of["bias"]
        return maps if limit is None else tf.clip_by_value(maps, 0.0, limit)

    maps = convolved((images.astype(np.float32) - 127) / 128, "_conv_stem", "_bn0", 2)
    for number, stride in enumerate(STRIDES):
        block, before = f"_blocks.{number}.", maps
        if f"{block}_expand_conv" in tensors:
            maps = convolved(maps, f"{block}_expand_conv", f"{block}_bn0")
        maps = convolved(maps, f"{block}_depthwise_conv", f"{block}_bn1", stride)
        maps = convolved(maps, f"{block}_project_conv", f"{block}_bn2", limit=None)
        if stride == 1 and maps.shape == before.shape:
            maps += before
    features = tf.reduce_mean(convolved(maps, "_conv_head", "_bn1"), (1, 2))
    return np.asarray(features @ tensors["_fc"]["weight"].T + tensors["_fc"]["bias"])


def test_with_the_published_weights_it_answers_as_written_down_plainly_also_compiled_by_xla(tensors: Layers) -> None:
    model = build_model(ModelSettings(kind="efficientnet-lite0"), (97, 64, 3), 1000, [1.0] * 3, [2.0] * 3)
    assert sum(np.prod(variable.shape) for variable in model.trainable_variables) == 4_652_008
    state = TrainingState(model, OptimizerSettings(kind="sgd", momentum=0.0), average_decay=0.0)
    taken = take_weights(state, InitSettings(file=LITE.file, checksum=LITE.checksum), from_pytorch(tensors))
    assert (taken.missing, taken.other_shape, taken.unused) == ((), (), ())
    # Smooth images, as photographs are: noise leaves the range of the weights.
    coarse = np.random.default_rng(0).integers(0, 256, (2, 5, 5, 3)).astype(np.float32)
    images = np.asarray(tf.image.resize(coarse, (97, 64), "bicubic")).clip(0, 255).astype(np.uint8)
    expected = plainly(tensors, images)
    assert np.std(expected) > 1000 * LITE_TOLERANCE
    compiled = tf.function(lambda given: model(given, training=False), jit_compile=True)
    for answer in (model(images, training=False), compiled(images)):
        assert np.allclose(answer, expected, atol=LITE_TOLERANCE, rtol=LITE_TOLERANCE)


def test_one_channel_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet_lite, "STAGES", STAGES[:2])
    settings = ModelSettings(kind="efficientnet-lite0")
    grey, colour = (build_model(settings, (33, 40, count), 4, [9.0] * count, [5.0] * count) for count in (1, 3))
    images = np.random.default_rng(0).integers(0, 256, (2, 33, 40, 1), dtype=np.uint8)
    assert np.array_equal(grey(images), colour(np.repeat(images, 3, axis=-1)))


STORAGE = b"X\x07\x00\x00\x00storage"
HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "code": (lambda data: data.replace(b"ctorch._utils\n_rebuild_tensor_v2\n", b"cposix\nsystem\n"), "posix.system"),
    "call": (lambda data: data.replace(b"ccollections\nOrderedDict\n", b"cbuiltins\neval\n"), "builtins.eval"),
    "type": (lambda data: data.replace(b"ctorch\nFloatStorage\n", b"ctorch\nQInt8Storage\n"), "torch.QInt8Storage"),
    "size": (lambda data: data.replace(b"(K K\x03K\x03K\x03t", b"(K\xffK\x03K\x03K\x03t", 1), "larger than its stor"),
    "cut": (lambda data: data[:-1], "is damaged"),
    "more": (lambda data: data + b"\0", "bytes follow the last storage"),
    "other": (lambda data: b"PK\x03\x04" + data, "is damaged"),
    "key": (lambda data: data.replace(STORAGE, b"X\x07\x00\x00\x00Storage"), "not of float32 or int64 numbers"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_of_anything_but_tensors_is_refused_in_one_line(file: Path, tmp_path: Path, name: str) -> None:
    change, words = HOSTILE[name]
    hostile = tmp_path / "hostile.pth"
    hostile.write_bytes(change(file.read_bytes()))
    with pytest.raises(ArtifactError, match=rf"^init=[^\n]*hostile\.pth[^\n]*{words}[^\n]*$"):
        read_weights(hostile, (".pth",))
