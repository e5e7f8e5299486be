"""Recipes of drawn values: each is refused by the values in conflict, or trains; and none of its values is ignored."""

from __future__ import annotations

import functools
import json
import math
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline.base.errors import SettingsError
from podline.base.progress import silent
from podline.kinds.classification.settings import ClassificationSettings
from podline.recipes import registry
from podline.recipes.durations import Duration
from podline.recipes.registry import value_paths
from podline.recipes.settings import Recipe
from podline.stages.from_recipe import training_spec
from podline.store.opening import open_store
from podline.training.train import train

# Two epochs of two steps.
RECIPE = small_recipe(batch_size=48, duration=Duration(epochs=2), deterministic=True)
Changes = dict[str, Any]


class Choice(NamedTuple):
    """A setting, values that it may have, and what these need to have an effect."""

    path: str
    values: tuple[Any, ...]
    needs: Changes


def choice(path: str, *values: Any, **needs: Any) -> Choice:
    """Dots in the names of what it needs are written as two underscores."""
    return Choice(path, values, {name.replace("__", "."): value for name, value in needs.items()})


def choices(section: str, **values: Any) -> list[Choice]:
    """Settings of a section that have an effect by themselves, with one value each."""
    return [choice(f"{section}.{name}" if section else name, value) for name, value in values.items()]


RESNET = {"model__kind": "resnet", "model__width": 0.1}
JUDGED = {"validation_share": 0.25, "evaluate_every__steps": 1, "duration__steps": 6}
# The loss falls a little in each evaluation, and the error stays.
CALM = JUDGED | {"schedule__learning_rate": 1e-5}
# The loss falls and rises, and so does the error.
WILD = JUDGED | {"schedule__learning_rate": 0.03, "augmentation__mixup": 10.0, "batch_size": 4, "duration__steps": 12}
STALLING = CALM | {
    "schedule__kind": "plateau",
    "schedule__plateau__patience": 1,
    "schedule__plateau__min_delta_share": 0.9,
}
EXPONENTIAL = {"schedule__kind": "exponential", "schedule__decay": 0.5}

RESTARTS = {"schedule__kind": "restarts", "schedule__period__steps": 2}
STEP = {"schedule__kind": "step", "schedule__boundaries": [{"share": 0.5}], "schedule__shares": [0.1]}

MIRRORED: Changes = {"from_share": 0.5, "changes": {"augmentation.flip": True}}
IN_WEIGHTS = (
    *choices("augmentation", pad=2, crop=0.5, flip=True, rand_augment=2, brightness=0.5, contrast=0.5, saturation=0.5),
    *choices("augmentation", hue=0.3, cutout=3, erase=1.0, mixup=0.5, cutmix=1.0),
    *choices("optimizer", momentum=0.5, nesterov=False, weight_decay=0.5, clip_norm=0.01),
    *choices("", ema_decay=0.5, validation_share=0.25, without_part="1/4", seed=1),
    *choices("schedule.warmup", steps=2, epochs=1, share=0.5),
    *choices("duration", steps=3, epochs=1),
    choice("schedule.learning_rate", 0.02),
    choice("model.dropout", 0.5),
    choice("model.kind", "resnet", "mobilenetv2"),
    choice("model.width", 2.0, **RESNET),
    choice("model.depth", 2, **RESNET),
    choice("model.activation", "gelu", **RESNET),
    choice("model.normalisation", "imagenet", "symmetric", "unit", "none"),
    choice("model.l2", 0.5, model__l2=0.1, model__l2_layers=["classifier"]),
    choice("model.l2_layers", ["classifier"], **RESNET, model__l2=0.1, model__l2_layers=["stem"]),
    choice("batch_size", 32, 96),
    choice("fit.epoch_steps", 4, fit__rate=False),
    choice("fit.least_batch", 40, fit__epoch_steps=4),
    choice("fit.rate", True, fit__epoch_steps=4),
    choice("fit.steps", 9, fit__rate=False),
    choice("optimizer.kind", "adam", "rmsprop", "adafactor", "muon"),
    choice("optimizer.kind", "adamw", optimizer__weight_decay=0.1),
    choice("optimizer.adam_rate", 0.5, optimizer__kind="muon"),
    choice("optimizer.rates", {"classifier": 0.5}),
    choice("accumulate", 2, **RESNET),
    choice("schedule.kind", "cosine", "one_cycle", schedule__warmup__steps=2),
    choice("schedule.kind", "exponential"),
    choice("schedule.kind", "plateau", **CALM),
    choice("schedule.final", 0.5, schedule__kind="cosine"),
    choice("schedule.by_phase", True, schedule__kind="cosine", phases=[MIRRORED]),
    choice("schedule.decay", 0.25, **EXPONENTIAL),
    choice("schedule.decay_every.steps", 1, **EXPONENTIAL),
    choice("schedule.decay_every.epochs", 1.5, **EXPONENTIAL),
    choice("schedule.decay_every.share", 0.25, **EXPONENTIAL),
    choice("schedule.power", 2.0, schedule__kind="polynomial"),
    choice("schedule.period.steps", 3, schedule__kind="restarts"),
    choice("schedule.period.epochs", 1.5, schedule__kind="restarts"),
    choice("schedule.period.share", 0.75, schedule__kind="restarts"),
    choice("schedule.period_factor", 1.0, **RESTARTS | {"schedule__period__steps": 1}),
    choice("schedule.peak_factor", 0.5, **RESTARTS),
    choice("schedule.boundaries", [{"share": 0.25}], **STEP),
    choice("schedule.shares", [0.5], **STEP),
    choice("schedule.plateau.min_delta", 0.0, **CALM, schedule__kind="plateau", schedule__plateau__min_delta=9.0),
    choice("schedule.plateau.min_lr", 9e-6, **STALLING),
    choice("schedule.plateau.metric", "error", **STALLING | {"schedule__plateau__min_delta_share": 0.0}),
    choice("schedule.plateau.factor", 0.5, **STALLING),
    choice("schedule.plateau.patience", 3, **STALLING),
    choice("schedule.plateau.min_delta_share", 0.0, **STALLING),
    choice("schedule.plateau.min_rate_share", 0.9, **STALLING),
    choice("schedule.plateau.cooldown", 2, **STALLING),
    choice("annealing.energy", "error", **WILD, annealing__temperature=1e-6),
    choice("annealing.temperature", 1e-6, **WILD, annealing__temperature=1e6),
    choice("annealing.final", 1e-9, **WILD, annealing__final=1.0, annealing__temperature=100.0),
    choice("early_stop.metric", "error", **CALM, early_stop__patience=1),
    choice("early_stop.patience", 2, None, **CALM, early_stop__metric="error", early_stop__restore=False),
    choice("early_stop.min_delta_share", 0.9, **CALM, early_stop__patience=1),
    choice("early_stop.min_delta", 9.0, **CALM, early_stop__patience=1),
    choice("early_stop.restore", False, **CALM, early_stop__patience=1, early_stop__min_delta_share=0.9),
    choice("task.label_smoothing", 0.2),
    choice("task.class_weights", "balanced", {"dark": 3.0}),
    choice("task.sampling", "balanced"),
    choice("augmentation.crop_ratio", 3.0, augmentation__crop=0.3),
    choice("augmentation.alternate", True, augmentation__flip=True),
    choice("augmentation.magnitude", 30, augmentation__rand_augment=2),
    choice("augmentation.image_size", 6, **RESNET),
    choice("augmentation.views", 1, augmentation__flip=True),
    choice("loss.kind", "focal"),
    choice("loss.gamma", 5.0, loss__kind="focal"),
    choice("trainable_layers", ["classifier"], **RESNET),
    choice("phases", [{"from_epoch": 1, "changes": {"batch_size": 32}}]),
    choice("phases", [{"from_share": 0.5, "changes": {"optimizer.kind": "adam", "augmentation.flip": True}}]),
    choice("fit.least_validation", 100, validation_share=0.25),
    choice("precision", "bfloat16", **RESNET),
)
# Three of `fit` have no effect by themselves on this data set and this model.
BESIDE_WEIGHTS = (
    *choices("", evaluation_batch_size=7, checkpoint_steps=1, checkpoint_minutes=0.001, summary_steps=1),
    *choices("evaluate_every", steps=1, epochs=2),
    *choices("explosion", factor=3.0, stretches=1),
    *choices("fit", evaluation_time=0.5),
    choice("deterministic", False),
    choice("evaluate_every", None, {"steps": 3}),
    choice("measures", ["top1"], validation_share=0.25),
    choice("keep", 2, "all"),
    choice("task.views", 2, 6),
    choice("trainable_layers", ["class"]),
    choice("fit.least_batch", 40),
    choice("fit.rate", True),
    choice("fit.least_validation", 10, validation_share=0.25),
)
# Names, files and published weights; code of packages; rules of promotion; what needs a GPU, or a minute of XLA.
ELSEWHERE = {"name", "dataset", "task.kind", "conversion", "further", "init", "hooks", "code", "promotion", "few"}
ELSEWHERE |= {"model.options", "optimizer.options", "loss.options", "augmentation.also", "model.weights"}
ELSEWHERE |= {"model.data_format", "jit"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the small data set in it."""
    root = tmp_path_factory.mktemp("drawn")
    publish_dataset(root)
    return root


def test_every_setting_is_among_those_that_are_drawn() -> None:
    paths = [path for path, _ in value_paths(Recipe, ClassificationSettings)]
    settings = {path for path in paths if not any(other.startswith(f"{path}.") for other in paths)}
    drawn = {choice.path for choice in (*IN_WEIGHTS, *BESIDE_WEIGHTS)}
    elsewhere = {path for path in settings if {path, path.partition(".")[0]} & ELSEWHERE}
    assert settings - elsewhere == drawn - {"evaluate_every"}


def drawn(number: int) -> Changes:
    """Draw one to six settings with a value each; two of three also get what they need."""
    chance = random.Random(number)
    changes: Changes = {}
    for path, values, needs in chance.sample((*IN_WEIGHTS, *BESIDE_WEIGHTS), chance.randint(1, 6)):
        needed = needs if chance.random() < 2 / 3 else {}
        changes |= {**needed, path: chance.choice(values)}
    return changes


def trains_or_is_refused(root: Path, changes: Changes) -> str:
    """Train a recipe; return the refusal, or nothing.

    A refusal is one line with the name of a changed setting, or of the section of one.
    """
    store = open_store(root)
    try:
        recipe = registry.override(RECIPE, changes)
        result = train(training_spec(store, recipe, FINGERPRINT, "cpu"), silent())
    except SettingsError as error:
        refusal = str(error)
        names = {part for path in changes for part in path.split(".")}
        assert "\n" not in refusal
        assert any(name in refusal for name in names), refusal
        return refusal
    assert result.steps > 0
    assert math.isfinite(result.loss)
    return ""


@pytest.mark.usefixtures("few_layers")
@pytest.mark.parametrize(
    "number", [*range(12), *(pytest.param(each, marks=pytest.mark.long) for each in range(12, 300))]
)
def test_a_drawn_recipe_trains_or_is_refused_by_a_changed_setting(root: Path, number: int) -> None:
    trains_or_is_refused(root, drawn(number))


CASES = [pytest.param(choice, value, id=f"{choice.path}={value}") for choice in IN_WEIGHTS for value in choice.values]


@functools.cache
def _weights(root: Path, changes: str) -> str:
    store = open_store(root)
    recipe = registry.override(RECIPE, json.loads(changes))
    return train(training_spec(store, recipe, FINGERPRINT, "cpu"), silent()).weights_sha256


def weights(root: Path, changes: Changes) -> str:
    """Return the checksum of a recipe's trained weights."""
    return _weights(root, json.dumps(changes))


@pytest.mark.long
@pytest.mark.usefixtures("few_layers")
@pytest.mark.parametrize(("choice", "value"), CASES)
def test_no_setting_is_ignored(root: Path, choice: Choice, value: Any) -> None:
    """A value changes the weights with what it needs; without, it changes them or is refused."""
    assert weights(root, {**choice.needs, choice.path: value}) != weights(root, choice.needs)
    alone, of_data = {choice.path: value}, {other.path for other in BESIDE_WEIGHTS}
    if choice.path not in of_data:  # some of those that fit a recipe to its data have an effect only together
        assert trains_or_is_refused(root, alone) or weights(root, alone) != weights(root, {})


@pytest.mark.long
@pytest.mark.parametrize("choice", BESIDE_WEIGHTS, ids=lambda choice: choice.path)
def test_what_only_says_how_to_run_leaves_the_weights_as_they_are(root: Path, choice: Choice) -> None:
    for value in choice.values:
        assert weights(root, {**choice.needs, choice.path: value}) == weights(root, choice.needs)
