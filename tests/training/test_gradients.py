from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from podline.training.steps import GradientNorms


def test_a_blocks_norm_is_that_of_all_its_gradients():
    variables = [
        keras.Variable(np.zeros(2, np.float32), name=name)
        for name in ("stage1_conv", "stage1_norm", "stage2_conv", "head")
    ]
    norms = GradientNorms(variables)
    assert norms.blocks == ("stage1", "stage2", "head")
    gradients = [tf.constant([1.0, 2.0]), tf.constant([0.0, 2.0]), tf.constant([4.0, 0.0]), None]
    one = norms.of(gradients).numpy()
    np.testing.assert_allclose(one, [5.0, 3.0, 4.0, 0.0])
    series = norms.series(np.stack([one, 2 * one]))
    assert {name: values.tolist() for name, values in series.items()} == {
        "gradient_norm": [5.0, 10.0],
        "gradient_norm/stage1": [3.0, 6.0],
        "gradient_norm/stage2": [4.0, 8.0],
        "gradient_norm/head": [0.0, 0.0],
    }
