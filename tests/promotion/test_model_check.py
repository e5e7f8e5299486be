"""``podline models check``: what of a model works, on random images."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.extending import answer

ODD = '''
"""A layer that draws without a generator, and one that calls Python."""

import keras
import tensorflow as tf
from keras import layers, ops

registered = keras.saving.register_keras_serializable(package="odd")


@registered
class Jitter(layers.Layer):
    def call(self, inputs, training=False):
        return inputs * (1 + 0.1 * keras.random.normal(ops.shape(inputs))) if training else inputs


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


@pytest.mark.slow
def test_each_part_says_whether_it_works_and_why_not(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    words = ("models", "check", "odd.py:network", "--side", "16", "--classes", "3")
    found = answer(tmp_path, None, *words, code=2, root=())
    parts = {part["name"]: (part["works"], part["words"]) for part in found["parts"]}
    working = {name for name, (works, _) in parts.items() if works}
    assert working >= {"builds twice alike", "trains", "publishes", "counts multiply-adds", "shows where it looks"}
    works, words = parts["resumes bit for bit"]
    assert not works
    assert "keras.random.SeedGenerator" in words
    assert parts["compiles with XLA"] == (False, "the operation EagerPyFunc is not supported")
    assert parts["converts to TFLite"] == (False, "the operation EagerPyFunc is not supported")
    assert parts["shows where it looks"][1] == "maps of 7 × 7 places"


def test_a_place_that_is_no_file_and_a_model_that_is_unknown_are_one_line(tmp_path: Path) -> None:
    for model, message in (("gone.py:net", "gone.py is no file"), ("vitt", "there is no model 'vitt'")):
        command = [sys.executable, "-m", "podline.cli", "models", "check", model, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 2
        assert message in json.loads(done.stdout)["error"]["message"]
