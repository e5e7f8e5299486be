"""Optimizers, schedules and decisions beside plain Keras: the same weights after 20 steps, the same rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import optimizers

from podline.base.errors import SettingsError
from podline.documents.metrics_log import EarlyStopLine, EvaluationLine, PlateauLine
from podline.recipes import registry
from podline.recipes.epochs import Epochs
from podline.recipes.keras_optimizers import KERAS_OPTIMIZERS, USUAL_RATES
from podline.recipes.schedule_settings import PlateauSettings
from podline.recipes.settings import EarlyStopSettings, OptimizerSettings, Recipe, ScheduleSettings
from podline.training.decisions import early_stop_line, plateau_line
from podline.training.optimizers import build_optimizer
from podline.training.schedules import build_schedule

STEPS = 20
CLOSE = 1e-5  # float32
CHANCE = np.random.default_rng(5)
IMAGES = CHANCE.normal(size=(STEPS * 8, 4)).astype(np.float32)
TARGETS = CHANCE.normal(size=(STEPS * 8, 3)).astype(np.float32)
_WRAPPERS = {"LossScaleOptimizer", "MultiOptimizer", "Optimizer"}


def network() -> keras.Model:
    """Two dense layers and a norm, with the same weights each time."""
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(6, activation="tanh", name="first")(inputs)
    outputs = keras.layers.Dense(3, name="last")(keras.layers.LayerNormalization(name="norm")(hidden))
    model = keras.Model(inputs, outputs)
    chance = np.random.default_rng(0)
    model.set_weights([chance.normal(0.3, 0.5, values.shape) for values in model.get_weights()])
    return model


def trained(make: Callable[[keras.Model], Any], rates: Iterator[float] | None = None, parts: int = 1) -> list[Any]:
    """The weights after 20 steps of 8 examples, each given to the optimizer in some parts."""
    model = network()
    optimizer = make(model)

    @tf.function
    def step(images: tf.Tensor, targets: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(images) - targets) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    for number in range(STEPS * parts):
        if rates is not None:
            optimizer.learning_rate = next(rates)
        places = slice(number * 8 // parts, (number + 1) * 8 // parts)
        step(tf.constant(IMAGES[places]), tf.constant(TARGETS[places]))
    return model.get_weights()


def require_equal(ours: list[Any], theirs: list[Any]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=CLOSE, atol=CLOSE)


def test_every_optimizer_of_keras_has_a_kind_and_its_own_rate() -> None:
    classes = {name for name, each in vars(optimizers).items() if isinstance(each, type)} - _WRAPPERS
    assert {each.name for each in KERAS_OPTIMIZERS.values()} == {
        name for name in classes if issubclass(getattr(optimizers, name), optimizers.Optimizer)
    }
    for kind, each in KERAS_OPTIMIZERS.items():
        assert float(getattr(optimizers, each.name)().learning_rate) == pytest.approx(each.learning_rate), kind


SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sgd": ({"momentum": 0.8, "nesterov": True}, {"momentum": 0.8, "nesterov": True}),
    "adam": ({"options": {"amsgrad": True, "beta_2": 0.9}}, {"amsgrad": True, "beta_2": 0.9}),
    "rmsprop": ({"momentum": 0.5, "options": {"centered": True}}, {"momentum": 0.5, "centered": True}),
    "ftrl": ({"options": {"beta": 0.1}}, {"beta": 0.1}),
    "keras_adafactor": ({"options": {"relative_step": False}}, {"relative_step": False}),
}
_OWN = [(kind, ({}, {})) for kind in KERAS_OPTIMIZERS]


@pytest.mark.parametrize(("kind", "settings"), [*_OWN, *SETTINGS.items()])
@pytest.mark.parametrize("decay", [None, 0.1])
def test_each_optimizer_takes_the_steps_of_keras(kind: str, settings: Any, decay: float | None) -> None:
    given, arguments = settings
    rate, made = USUAL_RATES[kind] * 10, getattr(optimizers, KERAS_OPTIMIZERS[kind].name)
    if decay:
        arguments = arguments | {"weight_decay": decay, "global_clipnorm": 0.3}
        given = given | {"weight_decay": decay, "clip_norm": 0.3}
        if kind == "keras_muon":
            arguments["adam_weight_decay"] = decay

    def theirs(model: keras.Model) -> Any:
        optimizer = made(rate, **arguments)
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
        optimizer.build(model.trainable_variables)
        return optimizer

    mine = OptimizerSettings(kind=kind, **given)
    require_equal(trained(lambda model: build_optimizer(mine, model.trainable_variables, rate)), trained(theirs))


def test_rates_by_layers_are_those_of_an_optimizer_for_each() -> None:
    settings = OptimizerSettings(kind="adam", weight_decay=0.1, rates={"": 0.5, "first": 0.1, "f*": 3.0})

    def theirs(model: keras.Model) -> Any:
        groups = [[each for each in model.trainable_variables if ("first" in each.path) == first] for first in (1, 0)]
        made = [optimizers.AdamW(rate, weight_decay=0.1) for rate in (0.001, 0.005)]
        for optimizer, group in zip(made, groups, strict=True):
            optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
            optimizer.build(group)

        class Both:
            def apply(self, gradients: Any, variables: Any) -> None:
                for optimizer, group in zip(made, groups, strict=True):
                    names = {each.path for each in group}
                    mine = [(g, v) for g, v in zip(gradients, variables, strict=True) if v.path in names]
                    optimizer.apply(*zip(*mine, strict=True))

        return Both()

    with pytest.raises(SettingsError, match=r"'f\*' is not the longest prefix of any weight that trains; the weights"):
        build_optimizer(settings, network().trainable_variables, 0.01)
    settings = settings.changed(rates={"": 0.5, "first": 0.1})
    require_equal(trained(lambda model: build_optimizer(settings, model.trainable_variables, 0.01)), trained(theirs))


EPOCHS = Epochs(160, 8)  # one epoch
SCHEDULES = optimizers.schedules
RATE = 0.1


@pytest.mark.parametrize(
    ("settings", "theirs"),
    [
        ({"kind": "cosine", "final": 0.1}, SCHEDULES.CosineDecay(RATE, STEPS, 0.1)),
        (
            {"kind": "exponential", "decay": 0.5, "decay_every": {"steps": 3}},
            SCHEDULES.ExponentialDecay(RATE, 3, 0.5, staircase=True),
        ),
        ({"kind": "polynomial", "final": 0.2, "power": 2.0}, SCHEDULES.PolynomialDecay(RATE, STEPS, 0.02, 2.0)),
        (
            {"kind": "restarts", "period": {"steps": 3}, "peak_factor": 0.5, "final": 0.1},
            SCHEDULES.CosineDecayRestarts(RATE, 3, 2.0, 0.5, 0.1),
        ),
        (
            {"kind": "restarts", "period": {"steps": 4}, "period_factor": 1.0},
            SCHEDULES.CosineDecayRestarts(RATE, 4, 1.0),
        ),
        (  # a boundary of Keras is the last step of the rate before it
            {"kind": "step", "boundaries": [{"steps": 5}, {"share": 0.5}], "shares": [0.5, 0.1]},
            SCHEDULES.PiecewiseConstantDecay([4, 9], [RATE, 0.5 * RATE, 0.1 * RATE]),
        ),
    ],
)
def test_each_schedule_gives_the_steps_of_keras(settings: Any, theirs: Any) -> None:
    schedule = build_schedule(ScheduleSettings(learning_rate=RATE, **settings), STEPS, EPOCHS)
    sgd = OptimizerSettings(kind="sgd")
    rates = iter([schedule.at(step) for step in range(STEPS)])
    mine = trained(lambda model: build_optimizer(sgd, model.trainable_variables, 0.0), rates)
    require_equal(mine, trained(lambda _: optimizers.SGD(theirs)))


@pytest.mark.parametrize("options", [{}, {"cooldown": 1}, {"min_delta": 0.1, "patience": 1}, {"min_lr": 0.02}])
def test_a_plateau_lowers_the_rate_as_keras_does(options: dict[str, Any]) -> None:
    losses = [1.0, 0.9, 0.95, 0.9, 0.85, 0.9, 0.9, 0.9, 0.9, 0.84, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
    settings = PlateauSettings(**{"factor": 0.5, "patience": 2, "min_delta": 1e-4, "min_lr": 0.0} | options)
    model = network()
    model.compile(optimizers.SGD(RATE), "mse")
    callback = keras.callbacks.ReduceLROnPlateau("loss", **{"factor": 0.5, "patience": 2} | options)
    callback.set_model(model)
    callback.on_train_begin()
    line: PlateauLine | None = None
    for epoch, loss in enumerate(losses):
        callback.on_epoch_end(epoch, {"loss": loss})
        line = plateau_line(settings, line, evaluation(epoch + 1, loss), RATE)
        assert RATE * line.factor == pytest.approx(float(model.optimizer.learning_rate))


@pytest.mark.parametrize("options", [{"patience": 2}, {"patience": 1, "min_delta": 0.1}])
def test_a_run_stops_and_keeps_the_epoch_that_keras_would(options: dict[str, Any]) -> None:
    losses = [1.0, 0.8, 0.75, 0.7, 0.72, 0.69, 0.7, 0.75, 0.8, 0.9]
    model = network()
    model.compile("sgd", "mse")
    callback = keras.callbacks.EarlyStopping("loss", restore_best_weights=True, **options)
    callback.set_model(model)
    callback.on_train_begin()
    line: EarlyStopLine | None = None
    for epoch, loss in enumerate(losses):
        callback.on_epoch_end(epoch, {"loss": loss})
        line = early_stop_line(EarlyStopSettings(**options), range(1, 11), 0, line, evaluation(epoch + 1, loss))
        assert line.stopped == bool(model.stop_training)
        if line.stopped:
            break
    assert line is not None
    assert line.stopped
    assert line.state == callback.best_epoch + 1


def evaluation(step: int, loss: float) -> EvaluationLine:
    return EvaluationLine(step=step, epoch=step, split="validation", examples=9, loss=loss, seconds=0.1, time=0.0)


def test_another_kind_of_optimizer_has_its_own_rate_and_settings() -> None:
    recipe = registry.get("cifar10")
    assert recipe.optimizer.momentum == 0.9
    adam = registry.override(recipe, {"optimizer.kind": "adam"})
    assert (adam.schedule.learning_rate, adam.optimizer.momentum) == (0.001, None)
    assert adam.optimizer.weight_decay == recipe.optimizer.weight_decay
    rmsprop = registry.override(recipe, {"optimizer.kind": "rmsprop", "schedule.learning_rate": 0.3})
    assert (rmsprop.schedule.learning_rate, rmsprop.optimizer.momentum) == (0.3, None)
    lion = Recipe(name="r", dataset="d", optimizer=OptimizerSettings(kind="lion"))
    assert lion.schedule.learning_rate == 0.001
    assert Recipe.model_validate(lion.model_dump()) == lion


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beta_3": 1}, "got options.beta_3, expected one of amsgrad, beta_1, beta_2, clipnorm"),
        ({"clipvalue": 0.5}, "clipvalue=0.5: leave it out"),
    ],
)
def test_an_option_that_is_none_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        build_optimizer(OptimizerSettings(kind="adam", options=options), network().trainable_variables, 0.1)


def test_what_the_recipe_has_a_setting_for_is_no_option() -> None:
    with pytest.raises(ValueError, match=r"got options.weight_decay=0.1, expected optimizer.weight_decay instead"):
        OptimizerSettings(kind="adam", options={"weight_decay": 0.1})
    with pytest.raises(ValueError, match=r"min_delta=0\.1 vs min_delta_share=0\.5: both bound the same"):
        PlateauSettings(min_delta=0.1, min_delta_share=0.5)
