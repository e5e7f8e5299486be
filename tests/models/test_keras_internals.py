"""How the private parts of Keras behave that Podline uses; tests/test_private_parts.py looks up each one."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers

from podline.models import keras_internals as internals


def test_names_begin_anew_and_go_on_afterwards() -> None:
    before = layers.Dense(1).name
    with internals.fresh_names():
        assert [layers.Dense(1).name for _ in range(2)] == ["dense", "dense_1"]
    number = int(before.rpartition("_")[2]) if before != "dense" else 0
    assert layers.Dense(1).name == f"dense_{number + 1}"


def test_a_graph_is_listed_and_computed_call_by_call() -> None:
    image = keras.Input((4, 4, 2))
    inner = keras.Sequential([layers.Conv2D(3, 3), layers.ReLU()], name="inner")
    model = keras.Model(image, layers.Dense(2)(layers.Flatten()(inner(image)) * 2.0))
    images = np.random.default_rng(0).normal(size=(2, 4, 4, 2)).astype(np.float32)
    assert [internals.has_graph(each) for each in (model, model.layers[1], model.layers[2])] == [True, True, False]
    nodes = list(internals.nodes_of(model))
    assert [type(node.operation).__name__ for node in nodes] == ["Sequential", "Flatten", "Multiply", "Dense"]
    assert nodes[2].inputs == nodes[1].outputs
    assert 2.0 in nodes[2].arguments
    twice = internals.run_graph(model, images, lambda operation, *args, **named: 2.0 * operation(*args, **named))
    assert np.abs(twice).max() > 1.5 * np.abs(model(images)).max(), "each call goes through it"
    outer, *within = internals.with_sublayers(model.layers[1])
    assert (outer.name, len(within)) == ("inner", 3)  # with its input


def test_initializers_can_be_changed_before_they_are_used() -> None:
    layer = layers.Dense(2)
    with keras.StatelessScope():
        layer.build((None, 3))
        assert internals.initializer_of(layer.kernel).seed
        internals.set_initializer(layer.kernel, keras.initializers.Constant(5.0))
    np.testing.assert_array_equal(layer.kernel, np.full((3, 2), 5.0))


def test_an_optimizer_takes_gradients_that_are_summed_already() -> None:
    optimizer, variables = keras.optimizers.SGD(1.0), [keras.Variable(np.zeros(2)) for _ in range(2)]
    optimizer.build(variables)
    assert [internals.place_in(optimizer, variable) for variable in variables] == [0, 1]
    asked, internal = [], "_all_reduce_sum_gradients"
    internals.without_sum(optimizer)
    kept = getattr(optimizer, internal)
    setattr(optimizer, internal, lambda pairs: asked.append(kept(pairs) is pairs) or pairs)
    optimizer.apply([np.ones(2, np.float32)] * 2)
    assert asked == [True]
