"""A plan gives steps, evaluations and rates by phase; a run of several phases takes them, broken off or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from dying_runs import arrays_of, finished_after, killed_at, lively_recipe, require_same, specs_of, unbroken
from keras.optimizers import schedules
from small_dataset import publish_dataset

from podline.base.errors import SettingsError
from podline.base.progress import silent
from podline.documents.manifest import Manifest
from podline.documents.metrics_log import EvaluationLine, StepsLine
from podline.models.counts import describe
from podline.recipes.durations import Duration
from podline.recipes.epochs import Epochs
from podline.recipes.phases import PhaseSettings
from podline.recipes.settings import AugmentationSettings, Recipe, ScheduleSettings
from podline.stages.specs import TrainResult, TrainSpec
from podline.training.plan import examples_by_phase, plan_training
from podline.training.schedules import Schedule, build_schedule
from podline.training.train import train
from tests.support.metrics import read_metrics


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Manifest:
    return publish_dataset(tmp_path_factory.mktemp("root"), train=50, test=9)


def recipe(**values) -> Recipe:
    return Recipe(name="t", dataset="sample", **({"batch_size": 8, "duration": Duration(epochs=3)} | values))


def test_durations_become_steps_of_whole_batches(manifest):
    plan = plan_training(recipe(evaluate_every=Duration(epochs=0.5)), manifest)
    assert (plan.order.steps_per_epoch, plan.total_steps, plan.evaluations) == (6, 18, (3, 6, 9, 12, 15, 18))
    assert (plan.order.count, plan.order.batch_size) == (50, 8)
    assert plan.epoch(9) == 1.5
    assert plan.phase(9).schedule.total == 18
    assert plan_training(recipe(evaluate_every=Duration(steps=0)), manifest).evaluations == (18,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 51}, r"batch_size=51 vs 50 examples .*smaller batch_size"),
        ({"augmentation": AugmentationSettings(cutout=8)}, "cutout=8 for images of 8 × 8"),
        ({"duration": Duration(steps=0)}, "a duration of 0 steps trains nothing"),
        ({"validation_share": 0.005}, r"validation_share=0\.005 vs 50 examples .* less than one example"),
        ({"validation_share": 0.9}, r"batch_size=8 vs 5 examples .*\(45 are held out\)"),
        ({"schedule": {"kind": "restarts", "period": {"steps": 0}}}, "period of 0 steps is less than one step"),
        (
            {"schedule": {"kind": "plateau"}, "validation_share": 0.2, "evaluate_every": None},
            r"schedule\.kind=plateau vs evaluate_every of none",
        ),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused(manifest, values, message):
    with pytest.raises(SettingsError, match=message):
        plan_training(recipe(**values), manifest)


def test_the_cost_of_an_impossible_training_is_refused():
    with pytest.raises(SettingsError, match="batch_size=8 vs 5 examples"):
        examples_by_phase(recipe(validation_share=0.9), 50)
    with pytest.raises(SettingsError, match="a duration of 0 steps trains nothing"):
        examples_by_phase(recipe(duration=Duration(steps=0)), 50)


def test_each_part_is_left_out_of_one_run_whatever_its_seed(manifest):
    left = [set(range(50)) - set(plan_training(recipe(without_part=f"{k}/3"), manifest).order.ids) for k in range(3)]
    assert sorted(map(len, left)) == [16, 17, 17]
    assert set.union(*left) == set(range(50))
    both = plan_training(recipe(without_part="1/3", seed=7, validation_share=0.2), manifest)
    assert not (left[1] | set(both.validation)) & set(both.order.ids)
    assert both.order.count == 50 - len(left[1] | set(both.validation))
    with pytest.raises(ValueError, match="got 3/3, expected parts from 0/3 to 2/3"):
        recipe(without_part="3/3")


EPOCHS = Epochs(1000, 20)  # of 50 steps


def schedule(total: int = 200, **settings: object) -> Schedule:
    return build_schedule(ScheduleSettings.model_validate(settings), total, EPOCHS)


@pytest.mark.parametrize(
    ("settings", "points"),
    [
        (
            {"kind": "constant", "learning_rate": 0.3, "warmup": {"steps": 30}},
            {0: 0.01, 1: 0.02, 14: 0.15, 28: 0.29, 29: 0.3, 30: 0.3, 199: 0.3},
        ),
        (
            {"kind": "exponential", "decay": 0.5, "decay_every": {"epochs": 0.2}, "warmup": {"epochs": 0.1}},
            {0: 0.002, 3: 0.008, 4: 0.01, 5: 0.01, 14: 0.01, 15: 0.005, 25: 0.0025},
        ),
        (
            {"kind": "one_cycle", "learning_rate": 0.4, "warmup": {"steps": 40}},
            {0: 0.01, 19: 0.2, 39: 0.4, 40: 0.4, 120: 0.2, 199: 0.0025, 200: 0.0, 300: 0.0},
        ),
        ({"kind": "one_cycle", "learning_rate": 1.0, "final": 0.5}, {0: 1.0, 100: 0.75, 200: 0.5}),
    ],
)
def test_a_rate_has_its_key_points(settings: dict[str, object], points: dict[int, float]) -> None:
    rate = schedule(**settings)
    assert {step: rate.at(step) for step in points} == pytest.approx(points, abs=1e-12)


@pytest.mark.parametrize(
    ("settings", "epochs", "words"),
    [
        ({"warmup": {"epochs": 4}}, EPOCHS, "schedule.warmup of 200 steps vs 200 steps of training"),
        ({"kind": "exponential", "decay_every": {"steps": 0}}, EPOCHS, "decay_every"),
        ({"kind": "exponential"}, Epochs(1000, 20, [(1, 40)]), r"by epoch: .*give schedule\.decay_every\.steps"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(settings: dict[str, object], epochs: Epochs, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        build_schedule(ScheduleSettings.model_validate(settings), 200, epochs)


RATE = 0.1


@pytest.mark.parametrize(
    ("settings", "theirs"),
    [
        ({"kind": "cosine", "final": 0.1}, schedules.CosineDecay(RATE, 20, 0.1)),
        (
            {"kind": "exponential", "decay": 0.5, "decay_every": {"steps": 3}},
            schedules.ExponentialDecay(RATE, 3, 0.5, staircase=True),
        ),
        ({"kind": "polynomial", "final": 0.2, "power": 2.0}, schedules.PolynomialDecay(RATE, 20, 0.02, 2.0)),
        (
            {"kind": "restarts", "period": {"steps": 3}, "peak_factor": 0.5, "final": 0.1},
            schedules.CosineDecayRestarts(RATE, 3, 2.0, 0.5, 0.1),
        ),
        (
            {"kind": "restarts", "period": {"share": 0.2}, "period_factor": 1.0},
            schedules.CosineDecayRestarts(0.1, 4, 1),
        ),
        (  # a boundary of Keras is the last step of the rate before it
            {"kind": "step", "boundaries": [{"steps": 5}, {"share": 0.5}], "shares": [0.5, 0.1]},
            schedules.PiecewiseConstantDecay([4, 9], [RATE, 0.5 * RATE, 0.1 * RATE]),
        ),
    ],
)
def test_a_rate_is_that_of_keras(settings: dict[str, object], theirs: Any) -> None:
    ours = schedule(20, learning_rate=RATE, **settings)
    assert [ours.at(step) for step in range(20)] == pytest.approx([float(theirs(step)) for step in range(20)], abs=1e-7)


# 96 examples of 8 × 8 pixels: an epoch of 12 steps, one of 6 and one of 12. At first the classifier alone trains, on
# small images; then all layers, with another loss; at last Adam trains them.
ALL_LAYERS = {"batch_size": 16, "augmentation": {"pad": 1}, "trainable_layers": [""], "optimizer.momentum": 0.5}
ALL_LAYERS |= {"task.label_smoothing": 0.2}
LOWER = {"schedule.learning_rate": 0.002}
RECIPE = lively_recipe(
    model={"kind": "resnet", "width": 0.1, "dropout": 0.2},
    duration={"epochs": 3},
    augmentation={"flip": True, "image_size": 6},
    trainable_layers=("classifier",),
    phases=(
        PhaseSettings(from_epoch=1, changes=ALL_LAYERS),
        PhaseSettings(from_epoch=2, changes={"batch_size": 8, "optimizer.kind": "adam"} | LOWER),
    ),
    evaluate_every={"epochs": 1},
    checkpoint_steps=7,
    summary_steps=5,
)


def spec_of(root: Path, **values) -> TrainSpec:
    publish_dataset(root)
    return specs_of(RECIPE)(root, **values)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[TrainSpec, TrainResult, Path]:
    return unbroken(spec_of(tmp_path_factory.mktemp("undisturbed")))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Manifest:
    return publish_dataset(tmp_path_factory.mktemp("data"))


def test_the_plan_cuts_the_run_where_a_phase_begins(whole):
    plan = plan_training(RECIPE, whole)
    phases = [(phase.first, phase.end, phase.recipe.batch_size) for phase in plan.phases]
    assert phases == [(0, 12, 8), (12, 18, 16), (18, 30, 8)]
    assert [plan.epoch(step) for step in (6, 12, 15, 18, 30)] == [0.5, 1, 1.5, 2, 3]
    assert [plan.rate(step) for step in (0, 17, 18, 29)] == [0.01, 0.01, 0.002, 0.002]
    cycle = {"kind": "one_cycle", "learning_rate": 0.06, "warmup": {"share": 0.5}, "by_phase": True}
    anew = RECIPE.changed(schedule=cycle, phases=RECIPE.phases[:1])
    rates = [plan_training(anew, whole).rate(step) for step in (0, 5, 6, 11, 12, 17, 18, 23)]
    assert rates == pytest.approx([0.01, 0.06, 0.06, 0.01] * 2), "up and down in each phase"
    short = plan_training(RECIPE.changed(duration=Duration(epochs=2)), whole)
    assert [phase.end for phase in short.phases] == [12, 18]


@pytest.mark.parametrize(
    ("every", "due"),
    [
        (Duration(epochs=0.5), (6, 12, 15, 18, 24, 30)),
        (Duration(steps=9), (9, 18, 27, 30)),
        (Duration(epochs=9), (30,)),
        (None, (30,)),
    ],
)
def test_evaluations_come_after_so_many_epochs_whatever_the_batch(whole, every, due):
    assert plan_training(RECIPE.model_copy(update={"evaluate_every": every}), whole).evaluations == due


LINEAR = {"model": {"kind": "linear"}, "augmentation": {}}


@pytest.mark.parametrize(
    ("values", "changes", "words"),
    [
        ({}, {"batch_size": 97}, "batch_size=97 vs 96 examples"),
        ({}, {"trainable_layers": ["stage9"]}, "no layer with weights starts with 'stage9'; the layers are: .*stem_"),
        (LINEAR, {"augmentation.image_size": 4}, r"images of \(4, 4, 3\), but the model needs \(8, 8, 3\)"),
    ],
)
def test_a_later_phase_that_cannot_be_is_refused_before_the_first_step(tmp_path, values, changes, words):
    phases = (PhaseSettings(from_epoch=2, changes=changes),)
    with pytest.raises(SettingsError, match=words):
        train(spec_of(tmp_path, **values, phases=phases), silent())


def test_lines_of_metrics_are_about_batches_of_one_size(undisturbed):
    _, result, folder = undisturbed
    lines = read_metrics(folder / "metrics.jsonl")
    steps = [line for line in lines if isinstance(line, StepsLine)]
    assert [line.step for line in steps] == [5, 7, 10, 12, 14, 15, 18, 20, 21, 25, 28, 30]
    assert [line.step for line in lines if isinstance(line, EvaluationLine)] == [12, 18, 30]
    assert {len(line.gradient_norms) for line in steps if line.step <= 12} == {1}
    assert min(len(line.gradient_norms) for line in steps if line.step > 12) > 1
    assert all(0 <= line.accuracy <= 1 for line in steps)
    assert (result.steps, result.examples, result.epochs, result.traces) == (30, 288, 3, 3)
    model = keras.models.load_model(folder / "model" / "model.keras")
    assert all(layer.trainable for layer in model.layers)
    small, whole = (describe(RECIPE.model, (side, side, 3), 3).multiply_adds for side in (6, 8))
    assert result.pflop == pytest.approx(6e-15 * (96 * small + 192 * whole))


def test_layers_that_do_not_train_stay_as_they_are_and_an_optimizer_begins_afresh_with_others(tmp_path, undisturbed):
    """Batch norm's moving statistics included; the optimizer has slots for all layers from the start."""
    _, _, folder = undisturbed
    spec = spec_of(tmp_path, checkpoint_steps=6)
    killed_at(spec, 19)
    at_6, at_12, at_18 = (arrays_of(tmp_path / spec.folder, step) for step in (6, 12, 18))
    moved = {name for name in at_6 if at_6[name].tobytes() != at_12[name].tobytes()}
    weights = {name.removeprefix("model/") for name in moved if name.startswith("model/")}
    assert weights
    assert all(name.startswith(("classifier", "seed", "dropout")) for name in weights), weights
    assert at_18.keys() == at_12.keys() == at_6.keys()
    last = arrays_of(folder, 30)
    assert [name for name in last if name.startswith("model/") and np.array_equal(last[name], at_6[name])] == []
    assert (at_18["optimizer/SGD/iteration"], at_18["steps"]) == (6, 18), "since other layers began to train"
    assert (last["optimizer/Adam/iteration"], last["steps"]) == (12, 30), "another optimizer begins fresh"
    assert not any(name.startswith("optimizer/SGD") for name in last)


def test_a_run_killed_in_the_middle_of_phases_and_between_two_ends_with_the_same_bits(undisturbed, tmp_path):
    spec = spec_of(tmp_path)
    require_same(spec, finished_after(spec, 16, 18), undisturbed)
