"""Networks as people write them: functions of image shape, classes and settings, each with something that is hard."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from podline.recipes import parts
from podline.training.loop import Hook, Stretch

registered = keras.saving.register_keras_serializable(package="own")


def installed_as(patch: pytest.MonkeyPatch, name: str, part: Any) -> None:
    """Make a part all that installed packages add."""
    about = {"value": f"{name}:{name}", "group": "podline", "module": name, "dist": None, "load": lambda: part}
    patch.setattr(parts.entry_points, "installed", lambda _group: [SimpleNamespace(name=name, **about)])


def classified(image: Any, features: Any, classes: int) -> keras.Model:
    return keras.Model(image, layers.Dense(classes)(layers.GlobalAveragePooling2D()(features)))


def network(*inner: Any, last: Any = None, **image: Any) -> Any:
    """The function of a model: a convolution, what makes further layers, a classifier, what follows its logits."""

    def build(shape: Any, classes: int, _settings: Any) -> keras.Model:
        inputs: Any = keras.Input(**{"shape": shape} | image)
        maps: Any = layers.Conv2D(6, 3, name="first")(inputs)
        for make in inner:
            maps = make()(maps)
        logits = layers.Dense(classes, name="head")(layers.GlobalAveragePooling2D()(maps))
        return keras.Model(inputs, last(logits) if last else logits)

    return build


@registered
class Fire(layers.Layer):
    """SqueezeNet's module: a list of unnamed layers, made when the number of channels is known."""

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = width

    def build(self, shape: Any) -> None:
        self.steps = [layers.Conv2D(self.width, 1, activation="relu"), layers.BatchNormalization()]
        self.wide = [layers.Conv2D(self.width, side, padding="same") for side in (1, 3)]
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, inputs: Any, training: bool = False) -> Any:
        squeezed = self.steps[1](self.steps[0](inputs), training=training)
        return ops.relu(ops.concatenate([conv(squeezed) for conv in self.wide], -1)) * self.scale

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "width": self.width}


def fire(shape: Any, classes: int, _settings: Any) -> keras.Model:
    image = keras.Input(shape)
    return classified(image, Fire(6)(Fire(4)(image)), classes)


@registered
class Residual(layers.Layer):
    """A branch that its maker hands over, a Sequential."""

    def __init__(self, branch: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.branch = branch

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs + self.branch(inputs, training=training)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "branch": keras.saving.serialize_keras_object(self.branch)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Residual:
        return cls(keras.saving.deserialize_keras_object(config.pop("branch")), **config)


def residual(shape: Any, classes: int, _settings: Any) -> keras.Model:
    image = keras.Input(shape)
    features = layers.Conv2D(8, 3, strides=2)(image)
    for _ in range(2):
        branch = keras.Sequential([layers.LayerNormalization(), layers.Conv2D(8, 3, padding="same")])
        features = Residual(branch)(ops.cast(ops.cast(features, "float16"), "float32"))
    return classified(image, features, classes)


@registered
class Memory(layers.Layer):
    """State of many types, which each training step changes and which the answers depend on."""

    def build(self, shape: Any) -> None:
        def state(name: str, dtype: str) -> Any:
            return self.add_weight(
                shape=(shape[-1],), dtype=dtype, initializer="ones", trainable=False, name=name, autocast=False
            )

        self.age, self.level, self.open = state("age", "int64"), state("level", "int8"), state("open", "bool")
        self.mean = state("mean", "bfloat16")

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.age.assign(self.age + 3)
            self.level.assign(self.level + ops.cast(1, "int8"))
            self.open.assign(ops.logical_not(self.open))
            self.mean.assign(self.mean * 0.7)
        gate = ops.cast(self.open, "float32") + ops.cast(self.level, "float32") / ops.cast(self.age, "float32")
        return inputs * gate + ops.cast(self.mean, "float32")


def memory(shape: Any, classes: int, _settings: Any) -> keras.Model:
    image = keras.Input(shape)
    return classified(image, Memory()(layers.Conv2D(8, 3, strides=2, activation="relu")(image)), classes)


def transfer(shape: Any, classes: int, _settings: Any) -> keras.Model:
    """A frozen backbone that is called as one layer, with its batch norm in inference."""
    inside = keras.Input(shape)
    features = layers.Conv2D(8, 3, strides=2)(inside)
    backbone = keras.Model(inside, layers.ReLU()(layers.BatchNormalization()(features)), name="backbone")
    backbone.trainable = False
    image = keras.Input(shape)
    return classified(image, layers.Conv2D(8, 3)(backbone(image, training=False)), classes)


@registered
class Whitening(layers.Layer):
    """A fixed kernel, computed where the layer is built."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(1, 1, shape[-1], 6), trainable=False, name="kernel")
        self.kernel.assign(np.cos(np.arange(shape[-1] * 6)).reshape(1, 1, shape[-1], 6))

    def call(self, inputs: Any) -> Any:
        return ops.conv(inputs, self.kernel)


def whitened(shape: Any, classes: int, _settings: Any) -> keras.Model:
    """Three ways to bring values: assigned in build, adapted to data, loaded."""
    image = keras.Input(shape)
    scaled = layers.Normalization()
    scaled.adapt(np.random.default_rng(5).normal(3, 2, (32, *shape)).astype(np.float32))
    loaded = layers.Conv2D(8, 3, name="loaded")
    model = classified(image, loaded(Whitening()(scaled(image))), classes)
    loaded.set_weights([np.sin(np.arange(3 * 3 * 6 * 8)).reshape(3, 3, 6, 8), np.arange(8.0)])
    return model


@registered
class Split(layers.Layer):
    """Two outputs, one of them with another rank and type."""

    def call(self, inputs: Any) -> Any:
        return {"maps": ops.relu(inputs), "brightest": ops.argmax(ops.mean(inputs, (1, 2)), -1)}


def twins(shape: Any, classes: int, _settings: Any) -> keras.Model:
    """One nested model that is called twice, and a layer with two outputs."""
    tower = keras.Sequential([keras.Input(shape), layers.Conv2D(6, 3), layers.ReLU(name="cut")], name="tower")
    image = keras.Input(shape)
    split = Split()(ops.concatenate([tower(image), tower(ops.flip(image, 2))], -1))
    return classified(image, split["maps"] + ops.cast(split["brightest"], "float32")[:, None, None, None], classes)


@registered
class Head(keras.Model):
    """A subclass of keras.Model as a layer, with a part that nothing reads."""

    def __init__(self, classes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.classes, self.dense, self.other = classes, layers.Dense(classes), layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        self.other(inputs)
        return self.dense(ops.mean(inputs, (1, 2)))

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "classes": self.classes}


def headed(shape: Any, classes: int, _settings: Any) -> keras.Model:
    image = keras.Input(shape)
    return keras.Model(image, Head(classes)(layers.Conv2D(6, 3)(image)))


BORN = time.time() % 100


@registered
class Dated(layers.Layer):
    """Its answers depend on when its module was imported."""

    def call(self, inputs: Any) -> Any:
        return inputs * BORN


def dated(shape: Any, classes: int, _settings: Any) -> keras.Model:
    image = keras.Input(shape)
    return classified(image, Dated()(layers.Conv2D(6, 3)(image)), classes)


class Late(Hook):
    """A hook that fails at the end of a run only."""

    def __init__(self, _run: Any) -> None:
        pass

    def after(self, stretch: Stretch) -> None:
        self.rehearse(stretch)

    def rehearse(self, stretch: Stretch) -> None:
        if stretch.last:
            raise ZeroDivisionError(f"step {stretch.step}")


ALL = (fire, residual, memory, transfer, whitened, twins, headed)
