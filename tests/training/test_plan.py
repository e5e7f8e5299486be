from __future__ import annotations

import pytest
from small_dataset import publish_dataset

from podline.documents.manifest import Manifest
from podline.errors import SettingsError
from podline.recipes.durations import Duration, Part
from podline.recipes.settings import AugmentationSettings, Recipe, ScheduleSettings
from podline.training.plan import plan_training


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
        ({"schedule": ScheduleSettings(warmup=Part(steps=18))}, "warm-up of 18 steps vs 18 steps"),
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


def test_a_part_is_held_out_and_the_rest_makes_the_epochs(manifest):
    plan = plan_training(recipe(validation_share=0.2), manifest)
    assert (len(plan.validation), plan.order.count, plan.order.steps_per_epoch) == (10, 40, 5)
    assert not set(plan.validation) & set(plan.order.ids)
