from __future__ import annotations

import functools
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import applications

from podline.errors import SettingsError
from podline.models.applications import named_as_first
from podline.models.batch_layers import BatchDropout
from podline.models.build import build_model, exportable
from podline.models.counts import described
from podline.recipes.settings import InitSettings, ModelSettings, OptimizerSettings
from podline.stages.from_recipe import weights_sha256
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


def network(kind: str, image_shape: tuple[int, int, int] = SHAPE, **settings: object) -> keras.Model:
    return build_model(
        ModelSettings.model_validate({"kind": kind, **settings}),
        image_shape,
        5,
        [9.0] * image_shape[2],
        [2.0] * image_shape[2],
    )


@functools.cache
def published(kind: str) -> keras.Model:
    """Keras's own model with weights of chance."""
    # Whoever published the weights had built nothing before.
    model = named_as_first(KERAS[kind](input_shape=SHAPE, include_top=False, weights=None, pooling="avg"))
    chance = np.random.default_rng(0)
    around = [float(variable.name in {"gamma", "moving_variance", "variable"}) for variable in model.weights]
    model.set_weights([chance.normal(a, 0.05, w.shape) for a, w in zip(around, model.get_weights(), strict=True)])
    return model


def saved_variables(model: keras.Model, file: str) -> None:
    module = tf.Module()
    module.kept = [tf.Variable(variable.numpy(), name=variable.path) for variable in model.weights]
    tf.saved_model.save(module, file)


SAVE = {
    "model.keras": lambda model, file: model.save(file),
    "model.weights.h5": lambda model, file: model.save_weights(file),
    "model.h5": keras.src.legacy.saving.legacy_h5_format.save_model_to_hdf5,
    "model.npz": lambda model, file: np.savez(file, **{each.path: each.numpy() for each in model.weights}),
    "saved": saved_variables,
}
SMALL, *LARGER = KERAS


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SMALL, "model.keras"),
        *(pytest.param(SMALL, name, marks=pytest.mark.slow) for name in SAVE if name != "model.keras"),
        *(pytest.param(kind, "model.h5", marks=pytest.mark.slow) for kind in LARGER),
    ],
)
def test_with_the_weights_of_a_file_features_are_those_of_keras(tmp_path: Path, kind: str, name: str):
    keras_model, model, file = published(kind), network(kind), tmp_path / name
    SAVE[name](keras_model, str(file))
    state = TrainingState(model, OptimizerSettings(kind="sgd", momentum=0.0), average_decay=0.9)
    taken = take_weights(state, InitSettings(file=str(file), sha256=weights_sha256(file)))
    assert (taken.missing, taken.other_shape, taken.unused) == (("classifier",), (), ())
    images = np.random.default_rng(1).integers(0, 256, (3, *SHAPE), dtype=np.uint8)
    expected = np.asarray(keras_model(images.astype(np.float32), training=False))
    assert np.std(expected) > 1000 * TOLERANCE
    for trained in (model, state.average):
        features = keras.Model(trained.input, trained.get_layer("classifier").input)
        assert np.allclose(features(images, training=False), expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KERAS)
def test_exported_it_is_plain_keras_and_all_multiply_adds_are_known(kind, tmp_path):
    model = network(kind)
    assert not described(model).uncounted
    exportable(model).save(tmp_path / "model.keras")
    found = keras.models.load_model(tmp_path / "model.keras", compile=False)
    images = np.random.default_rng(1).integers(0, 256, (3, *SHAPE), dtype=np.uint8)
    assert np.allclose(found(images, training=False), model(images, training=False), atol=1e-4)


def test_images_that_are_too_small_or_grey_are_refused():
    for height, channels in ((31, 3), (64, 1)):
        with pytest.raises(SettingsError, match=rf"{height} × 64 × {channels} vs at least 32 × 32 × 3"):
            network("convnext-tiny", (height, 64, channels))
    assert network(SMALL, width=0.5).count_params() < published(SMALL).count_params()


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
