"""A model that cannot be trained, resumed or shared by replicas is refused by its layer's name before it trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import own_models
import pytest
import tensorflow as tf
from keras import layers, ops
from own_models import network

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

SHAPE, CLASSES, BATCH = (16, 16, 3), 4, 8


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Makes a function the model ``own``."""
    return lambda function: own_models.installed_as(monkeypatch, "own", function)


@pytest.fixture
def own(installed: Callable[[Any], None]) -> Callable[..., None]:
    """Makes the model ``own`` of some layers; see :func:`own_models.network`."""
    return lambda *inner, last=None: installed(network(*inner, last=last))


def built(precision: Precision = "float32") -> keras.Model:
    return build_model(ModelSettings(kind="own"), SHAPE, CLASSES, [120.0] * 3, [60.0] * 3, 0, precision)


def steps_of(
    objective: Objective | None = None, precision: Precision = "float32", strategy: Any = None
) -> TrainingSteps:
    strategy = strategy or tf.distribute.get_strategy()
    random = np.random.default_rng(0)
    batch: Any = {"image": random.integers(0, 256, (BATCH, *SHAPE), np.uint8), "label": np.arange(BATCH) % CLASSES}
    batch["labels"] = (np.arange(CLASSES) == batch["label"][:, None]).astype(np.int64)
    with strategy.scope():
        state = TrainingState(built(precision), OptimizerSettings(), 0.5)
    parts_of = strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_tensors(batch).unbatch().batch(BATCH // strategy.num_replicas_in_sync).repeat()
    )
    return TrainingSteps(strategy, state, lambda _: 0.1, objective or ClassificationObjective(), parts_of, BATCH)


@own_models.registered
class Unseeded(keras.initializers.Initializer):
    """Draws from Keras's generator, which the process shares."""

    def __call__(self, shape, dtype=None):
        return keras.random.normal(shape)


@own_models.registered
class Unnamed(layers.Layer):
    """A layer that does not say how it was made."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def call(self, inputs):
        return inputs * self.factor


@own_models.registered
class Places(layers.Layer):
    """A layer with a table that no step changes."""

    def build(self, shape):
        self.table = self.add_weight(shape=(shape[-1],), dtype="int32", initializer="ones", trainable=False)

    def call(self, inputs):
        return inputs * keras.ops.cast(self.table, inputs.dtype)


@own_models.registered
class Valued(layers.Layer):
    """A layer that makes a variable of a value."""

    def build(self, _shape):
        self.shift = keras.Variable(np.arange(6.0))

    def call(self, inputs):
        return inputs + self.shift


@own_models.registered
class Unbuilt(layers.Layer):
    """A layer whose part is built by its first call on values, as neither build nor the output's shape does it."""

    def __init__(self, **options):
        super().__init__(**options)
        self.inner, self.unused = layers.Dense(4), layers.Dense(2)

    def build(self, _shape):
        pass

    def call(self, inputs):
        return self.inner(inputs)

    def compute_output_shape(self, shape):
        return (*shape[:-1], 4)


@own_models.registered
class Decoded(layers.Layer):
    """Multiplies by the transposed kernel of a layer that it is given."""

    def __init__(self, encoder, **options):
        super().__init__(**options)
        self.encoder = encoder

    def call(self, inputs):
        return keras.ops.matmul(inputs, keras.ops.transpose(self.encoder.kernel))

    def get_config(self):
        return {**super().get_config(), "encoder": keras.saving.serialize_keras_object(self.encoder)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config.pop("encoder")), **config)


def decoded():
    encoder = layers.Dense(4, name="encoder")
    return lambda maps: Decoded(encoder, name="decoder")(encoder(maps))


def with_positions(positions: Callable[[int], Any]) -> Any:
    """The function of a model that adds constants to features."""

    def build(shape: Any, classes: int, _settings: Any) -> keras.Model:
        image = keras.Input(shape)
        return keras.Model(image, layers.Dense(classes)(layers.Flatten()(image)[:, :8] + positions(8)))

    return build


def quantized(*arguments: Any) -> keras.Model:
    """A model whose last layer has quantized weights."""
    model = network()(*arguments)
    model.layers[-1].quantize("int8")
    return model


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *_: 3, r"model own: its function gives a int, expected keras.Model\(inputs, outputs\)"),
        (keras.Sequential([layers.Dense(4)]), "model own .* is a keras.Model, expected a function that returns one"),
        (network(batch_size=8), r"got inputs \(8, .*, expected \(None, 16, 16, 3\); leave batch_size=8 out"),
        (network(shape=(None, 16, 3)), r"got inputs \(None, None, 16, 3\), .*keras.Input\(\(16, 16, 3\)\)"),
        (
            network(last=lambda logits: {"scores": logits}),
            r"got outputs \{'scores': \(None, 4\)\}, expected one tensor of logits",
        ),
        (
            network(lambda: layers.Conv2D(4, 3, activation=lambda inputs: inputs * 2)),
            r"layer conv2d \(Conv2D\) cannot be made .* write a function, with @keras.saving.register_keras",
        ),
        (
            network(lambda: layers.DepthwiseConv2D(3, dtype="float16")),
            "layer depthwise_conv2d: .*/kernel is float16, expected float32; leave the layer's dtype out",
        ),
        (network(Valued), r"layer valued \(Valued\) cannot be built .* by self.add_weight\(shape=…, "),
        (
            network(Unbuilt),
            r"layer unbuilt \(Unbuilt\): only the first step builds its layer dense.* \(Dense\), too late",
        ),
        (network(decoded), "model own: layers encoder and decoder share .*kernel, but layers made from their get_"),
        (network(lambda: Unnamed(2)), r"layer unnamed \(Unnamed\) cannot be made from its get_config\(\): "),
        (
            network(lambda: layers.Conv2D(4, 3, kernel_initializer=Unseeded())),
            "the initial values of conv2d/kernel differ each time",
        ),
        (quantized, r"layer head is quantized \(int8\), .* leave `quantize` out"),
        # A layer that is called on a constant never trains.
        (
            with_positions(lambda count: layers.Embedding(count, 1)(np.arange(count))[:, 0]),
            "model own: its constants differ each time the model is built",
        ),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_by_name(installed: Any, function: Any, message: str) -> None:
    installed(function)
    with pytest.raises(SettingsError, match=message):
        built()


def test_under_several_replicas_what_has_a_state_of_its_own_is_refused_by_name(installed: Any) -> None:
    installed(network(lambda: layers.GaussianNoise(0.1, name="noise")))
    built()
    replicas = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with (
        replicas.scope(),
        pytest.raises(SettingsError, match=r"layer noise \(GaussianNoise\) .* 2 replicas would differ"),
    ):
        built()
    scaled = layers.Normalization()
    scaled.adapt(np.arange(24.0).reshape(4, 6))
    positions = with_positions(lambda count: keras.ops.sin(keras.ops.arange(count, dtype="float32")))
    for constant in (positions, network(lambda: keras.Sequential([scaled]), Places)):
        installed(constant)
        with replicas.scope():
            built()


@own_models.registered
class Jitter(layers.Layer):
    """Random numbers of Keras without a seed, in a layer within a layer."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs + keras.random.normal(ops.shape(inputs)) if training else inputs


@own_models.registered
class Jittered(layers.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = Jitter()

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.inner(inputs, training=training)


@own_models.registered
class Shaken(layers.Layer):
    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs * tf.random.truncated_normal(tf.shape(inputs)) if training else inputs


@own_models.registered
class Counter(layers.Layer):
    """A value that no checkpoint holds, since Keras does not know of it."""

    def build(self, input_shape: Any) -> None:
        self.hidden = {"steps": tf.Variable(tf.ones(()), trainable=False)}

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs / (self.hidden["steps"].assign_add(1.0) if training else 1.0)


@own_models.registered
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
        (Shaken, r"layer odd \(Shaken\): its random numbers come from TensorFlow's TruncatedNormal, .*SeedGen"),
        (Counter, r"layer odd \(Counter\): it keeps odd/Variable:0, which no checkpoint contains; .* self.add_weight"),
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


@own_models.registered
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
        ({"factor": 0.5}, r"layer odd \(Attenuated\): a copy by its get_config\(\) has factor=1.0, expected 0.5"),
        ({"filters": 5}, r"layer odd \(Attenuated\): .* has weights=\[\(1, 1, 6, 2\), \(2,\)\], expected"),
    ],
)
def test_a_layer_whose_config_leaves_an_argument_out_is_refused(own: Any, options: Any, message: str) -> None:
    own(lambda: Attenuated(name="odd", **options))
    with pytest.raises(SettingsError, match=message):
        steps_of()
    own(lambda: Attenuated(name="odd"))
    assert np.isfinite(steps_of().advance(1).series["loss"]).all(), "it may leave defaults out"


@own_models.registered
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
    own(last=lambda x: layers.Rescaling(9.0)(layers.Activation("sigmoid")(x)))
    assert np.isfinite(steps_of().advance(1).series["loss"]).all(), "logits that come from a sigmoid train"


@own_models.registered
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
