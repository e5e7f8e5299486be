"""What is wrong with a model of one's own is said when its step is traced, by the layer's name."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from own_models import installed_as

from podline.base.errors import SettingsError
from podline.contract.objective import Objective
from podline.kinds.classification.objective import ClassificationObjective
from podline.kinds.labels.objective import LabelsObjective
from podline.models import precision
from podline.models.build import build_model
from podline.recipes.settings import LossSettings, ModelSettings, OptimizerSettings, Precision
from podline.training import devices
from podline.training.state import TrainingState
from podline.training.steps import TrainingSteps

SHAPE, CLASSES, BATCH = (8, 8, 3), 4, 8
registered = keras.saving.register_keras_serializable(package="refused")


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the model ``own`` of some layers, between an image and a classifier of some activation."""

    def make(*inner: Any, last: Any = None) -> None:
        def function(shape: Any, classes: int, _settings: Any) -> keras.Model:
            image = keras.Input(shape)
            maps = layers.Conv2D(6, 3, name="first")(image)
            for layer in inner:
                maps = layer()(maps)
            logits = layers.Dense(classes, name="head")(layers.GlobalAveragePooling2D()(maps))
            return keras.Model(image, last(logits) if last else logits)

        installed_as(monkeypatch, "own", function)

    return make


def steps_of(
    objective: Objective | None = None, precision: Precision = "float32", strategy: Any = None
) -> TrainingSteps:
    strategy = strategy or tf.distribute.get_strategy()
    random = np.random.default_rng(0)
    batch: Any = {"image": random.integers(0, 256, (BATCH, *SHAPE), np.uint8), "label": np.arange(BATCH) % CLASSES}
    batch["labels"] = (np.arange(CLASSES) == batch["label"][:, None]).astype(np.int64)
    with strategy.scope():
        model = build_model(ModelSettings(kind="own"), SHAPE, CLASSES, [120.0] * 3, [60.0] * 3, 0, precision)
        state = TrainingState(model, OptimizerSettings(), 0.5)
    parts_of = strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_tensors(batch).unbatch().batch(BATCH // strategy.num_replicas_in_sync).repeat()
    )
    return TrainingSteps(strategy, state, lambda _: 0.1, objective or ClassificationObjective(), parts_of, BATCH)


@registered
class Jitter(layers.Layer):
    """Random numbers of Keras without a seed, in a layer within a layer."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs + keras.random.normal(ops.shape(inputs)) if training else inputs


@registered
class Jittered(layers.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = Jitter()

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.inner(inputs, training=training)


@registered
class Shaken(layers.Layer):
    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs * tf.random.truncated_normal(tf.shape(inputs)) if training else inputs


@registered
class Counter(layers.Layer):
    """A value that no checkpoint holds, since Keras does not know of it."""

    def build(self, input_shape: Any) -> None:
        self.hidden = {"steps": tf.Variable(tf.ones(()), trainable=False)}

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs / (self.hidden["steps"].assign_add(1.0) if training else 1.0)


@registered
class Seeded(layers.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs + keras.random.normal(ops.shape(inputs), seed=self.seed_generator) if training else inputs


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Jittered, r"layer odd \(Jittered\): its random numbers come from a generator that no .*; give it self.seed"),
        (Shaken, r"layer odd \(Shaken\): its random numbers come from TruncatedNormal of TensorFlow, .*SeedGen"),
        (Counter, r"layer odd \(Counter\): it keeps odd/Variable:0, which no checkpoint holds; .* self.add_weight"),
    ],
)
def test_a_layer_that_a_resumed_run_would_not_repeat_is_refused(own: Any, kind: Any, message: str) -> None:
    own(lambda: kind(name="odd"))
    with pytest.raises(SettingsError, match=message):
        steps_of()
    keras.random.uniform(())  # now Keras's common generator is older than the graph
    with pytest.raises(SettingsError, match=message):
        steps_of()


def test_a_layer_of_a_seed_generator_repeats_its_steps(own: Any) -> None:
    own(Seeded, lambda: layers.GaussianNoise(0.1))
    steps = steps_of()
    before = steps._state.snapshot()
    first = steps.advance(3).series["loss"]
    steps._state.restore(before)
    np.testing.assert_array_equal(steps.advance(3).series["loss"], first)


def test_replicas_refuse_it_by_the_same_words(own: Any) -> None:
    own(lambda: Jittered(name="odd"))
    strategy = devices.prepare(0, deterministic=False, strategy="cpu:2")
    with pytest.raises(SettingsError, match=r"layer odd \(Jittered\): its random numbers come from a generator"):
        steps_of(strategy=strategy)
    own()
    assert np.isfinite(steps_of(strategy=strategy).advance(1).series["loss"]).all()


@registered
class Attenuated(layers.Layer):
    """A layer that keeps what its copy does not get."""

    def __init__(self, factor: float = 1.0, filters: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor, self.inner = factor, layers.Conv2D(filters, 1)

    def build(self, input_shape: Any) -> None:
        self.inner.build(input_shape)

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs) * self.factor

    def get_config(self) -> dict[str, Any]:
        return super().get_config()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 0.5}, r"layer odd \(Attenuated\): got factor=1.0 of a copy by its get_config\(\), expected 0.5"),
        ({"filters": 5}, r"layer odd \(Attenuated\): got weights=\[\(1, 1, 6, 2\), \(2,\)\] of a copy"),
    ],
)
def test_a_layer_whose_config_leaves_an_argument_out_is_refused(own: Any, options: Any, message: str) -> None:
    own(lambda: Attenuated(name="odd", **options))
    with pytest.raises(SettingsError, match=message):
        steps_of()
    own(lambda: Attenuated(name="odd"))
    assert np.isfinite(steps_of().advance(1).series["loss"]).all(), "it may leave defaults out"


@registered
class Sharpened(layers.Layer):
    """Probabilities of a class of one's own, in bfloat16 as well."""

    def call(self, inputs: Any) -> Any:
        return keras.activations.softmax(inputs * 3.0)


def nested(logits: Any) -> Any:
    return keras.Sequential([keras.Input((CLASSES,)), layers.Dense(CLASSES, "sigmoid", name="probable")])(logits)


@pytest.mark.parametrize(
    ("last", "objective", "message"),
    [
        (lambda x: layers.Activation("softmax", name="odd")(x + x), None, "layer odd: .* softmax"),
        (lambda x: layers.Reshape((CLASSES,))(Sharpened(name="odd")(x)), None, "layer odd: .* softmax"),
        (nested, LabelsObjective(settings=LossSettings(kind="focal")), "layer probable: .* sigmoid, expected logits"),
    ],
)
def test_probabilities_in_place_of_logits_are_refused(own: Any, last: Any, objective: Any, message: str) -> None:
    own(last=last)
    with pytest.raises(SettingsError, match=message):
        steps_of(objective)


def test_logits_that_come_from_a_sigmoid_train(own: Any) -> None:
    own(last=lambda x: layers.Rescaling(9.0)(layers.Activation("sigmoid")(x)))
    assert np.isfinite(steps_of().advance(1).series["loss"]).all()


@registered
class Centred(layers.Layer):
    """A penalty for each example, and one without an example's axis."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(ops.mean(inputs**2))
        self.add_loss(ops.mean(ops.abs(inputs), (1, 2, 3)))
        return inputs


def test_penalties_of_outputs_count_in_bfloat16_and_alike_in_float32(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    regularizers = {"kernel_regularizer": "l2", "activity_regularizer": keras.regularizers.L1(0.01)}
    monkeypatch.setattr(precision, "cpu_flags", lambda: {"avx512_bf16"})
    own(lambda: layers.Conv2D(4, 3, **regularizers), Centred)
    full, half = (float(steps_of(precision=each).advance(1).series["loss"][0]) for each in ("float32", "bfloat16"))
    assert half == pytest.approx(full, rel=0.02)
    assert full > 2
