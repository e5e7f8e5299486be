"""``podline models check``: what of a model works, on random images."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.extending import answer

from podline.champions.model_check import _Trial

ODD = '''
"""A layer that draws random numbers, and one that calls Python."""

import keras
import tensorflow as tf
from keras import layers, ops

HERE = layers.Dense(2)  # at import; it must not change the names of a network's layers
registered = keras.saving.register_keras_serializable(package="odd")


@registered
class Jitter(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.draws = keras.random.SeedGenerator(1)

    def call(self, inputs, training=False):
        noise = keras.random.normal(ops.shape(inputs), seed=self.draws, dtype=inputs.dtype)
        return inputs * (1 + 0.1 * noise) if training else inputs


@registered
class Host(layers.Layer):
    def call(self, inputs):
        return tf.ensure_shape(tf.py_function(lambda values: values, [inputs], tf.float32), inputs.shape)

    def compute_output_shape(self, shape):
        return shape


def network(shape, classes, settings):
    image = keras.Input(shape)
    maps = Host()(Jitter()(layers.Conv2D(4, 3, strides=2)(image)))
    return keras.Model(image, layers.Dense(classes)(layers.GlobalMaxPooling2D()(maps)))
'''


@pytest.mark.parametrize(("loss", "difference"), [(0.0, 0.0), (2.0, 0.5), (-2.0, 0.5)])
def test_losses_are_compared_by_their_size_even_if_they_are_zero_or_negative(loss: float, difference: float) -> None:
    before = np.full(2, loss)
    assert _Trial._difference(SimpleNamespace(_losses=before), 1.5 * before) == difference


@pytest.mark.slow
def test_each_part_says_whether_it_works_and_why_not(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    words = ("models", "check", "odd.py:network", "--side", "16", "--classes", "3")
    found = answer(tmp_path, None, *words, root=())
    parts = {part["name"]: (part["works"], part["words"]) for part in found["parts"]}
    failing = {name for name, (works, _) in parts.items() if works is False}
    assert failing - {"trains in bfloat16"} == {"trains on two devices", "compiles with XLA", "converts to TFLite"}
    assert "layer jitter (Jitter) updates " in parts["trains on two devices"][1]
    assert parts["compiles with XLA"] == (False, "the operation EagerPyFunc is not supported")
    assert parts["converts to TFLite"] == (False, "the operation EagerPyFunc is not supported")
    assert parts["shows where it looks"][1] == "feature maps of 7 × 7 positions"

    # What does not train has exit code 2.
    (tmp_path / "odd.py").write_text(ODD.replace("seed=self.draws, ", ""))
    found = answer(tmp_path, None, "models", "check", "odd.py:network", code=2, root=())
    _, trains, publishes, *_ = found["parts"]
    assert not trains["works"]
    assert "layer jitter (Jitter): its random numbers come from a generator" in trains["words"]
    assert (publishes["works"], publishes["words"]) == (None, "not tried, since the model does not train")

    (tmp_path / "odd.py").write_text(ODD.replace("Dense(classes)", "Dense(classes, 'softmax')"))
    found = answer(tmp_path, None, "models", "check", "odd.py:network", code=2, root=())
    assert "last operation is softmax, expected logits" in found["parts"][1]["words"]


def test_a_place_that_is_no_file_and_a_model_that_is_unknown_are_one_line(podline) -> None:
    for model, message in (("gone.py:net", "the file gone.py does not exist"), ("vitt", "there is no model 'vitt'")):
        said = podline("models", "check", model)
        assert (said.code, said.err.count("\n"), message in said.err) == (2, 1, True)
