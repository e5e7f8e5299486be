"""What a training will do: its steps, its evaluations, its learning rate."""

from __future__ import annotations

from typing import Any

import pytest
from keras.optimizers import schedules
from small_dataset import publish_dataset

from podline.base.errors import SettingsError
from podline.documents.manifest import Manifest
from podline.recipes.durations import Duration, Part
from podline.recipes.epochs import Epochs
from podline.recipes.settings import AugmentationSettings, Recipe, ScheduleSettings
from podline.training.plan import plan_training
from podline.training.schedules import Schedule, build_schedule


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
        ({"augmentation": AugmentationSettings(cutout=8)}, "cutout=8 vs images of 8 × 8"),
        ({"duration": Duration(steps=0)}, "a duration of 0 steps trains nothing"),
        ({"schedule": ScheduleSettings(warmup=Part(steps=18))}, "schedule.warmup of 18 steps vs 18 steps"),
        ({"validation_share": 0.005}, r"validation_share=0\.005 vs 50 examples .* less than one example"),
        ({"validation_share": 0.9}, r"batch_size=8 vs 5 examples .*\(45 are held out\)"),
        (
            {"schedule": {"kind": "plateau"}, "validation_share": 0.2, "evaluate_every": None},
            r"schedule\.kind=plateau vs evaluate_every of none",
        ),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused(manifest, values, message):
    with pytest.raises(SettingsError, match=message):
        plan_training(recipe(**values), manifest)


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
            {"kind": "exponential", "decay": 0.5, "decay_every": {"steps": 10}, "warmup": {"epochs": 0.1}},
            {0: 0.002, 3: 0.008, 4: 0.01, 5: 0.01, 14: 0.01, 15: 0.005, 25: 0.0025},
        ),
        (
            {"kind": "cosine", "learning_rate": 2.0, "final": 0.1, "warmup": {"epochs": 2}},
            {0: 0.02, 49: 1.0, 99: 2.0, 100: 2.0, 150: 1.1, 200: 0.2, 999: 0.2},
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
        ({"kind": "exponential"}, Epochs(1000, 20, [(1, 40)]), r"changes by epoch: .*give decay_every\.steps"),
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
