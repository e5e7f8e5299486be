"""A form changes the recipe, refuses what cannot be by the titles of its fields, and is a command line as well."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext

from podline.base.errors import SettingsError
from podline.data.people.settings import CocoSettings
from podline.kinds.pose.settings import PoseSettings
from podline.recipes import registry
from podline.recipes.durations import Duration
from podline.recipes.published_weights import PUBLISHED
from podline.settings.machine import Settings
from podline.store.opening import open_store
from podline.tasks.forms import TrainingForm, TrainingGroup, read_form
from podline.tasks.nights import run_name
from podline.tasks.sources import conversion


def test_what_is_filled_in_changes_the_recipe() -> None:
    assert TrainingForm(recipe="sample").training_recipe() == registry.get("sample")
    group = TrainingGroup(
        steps=7, model="linear", batch_size=32, learning_rate=0.5, seed=0, assignments=("augmentation.pad=3",)
    )
    recipe = TrainingForm(recipe="mnist", source="mnist", training=group).training_recipe()
    assert recipe.duration == Duration(steps=7)
    assert (recipe.batch_size, recipe.schedule.learning_rate, recipe.model.kind, recipe.seed) == (32, 0.5, "linear", 0)
    assert recipe.augmentation.pad == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"training": {"steps": 1}, "epochs": 2}, "got epochs=2 and steps=1, expected one of"),
        ({"recipe": "mnist"}, "the recipe mnist needs a source: give the folder or the file of"),
        ({"source": "https://me:hush@host/x.tgz"}, r"source https://\*\*\*@host/x.tgz contains a user"),
        ({"training": {"assignments": ("model.kin=linear",)}}, "no 'model.kin'; did you mean 'model.kind'"),
    ],
)
def test_what_the_form_cannot_refuse_is_refused_all_the_same(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        TrainingForm.model_validate({"recipe": "sample"} | given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": -1}, "Epochs = -1: Input should be greater than or equal to 0"),
        ({"training": {"batch_size": "many"}}, "Training, Batch size = 'many': Input should be a valid integer"),
        ({"machine": {"roof": "x"}}, "there is no field 'roof'; did you mean 'root'?"),
    ],
)
def test_a_value_that_cannot_be_is_told_by_the_title_of_its_field(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}"):
        read_form(TrainingForm, {"recipe": "sample"} | given)


@pytest.mark.parametrize(
    ("deployed", "scheduled", "named", "expected"),
    [
        (True, False, "sample: baseline-resnet", "sample: baseline-resnet"),
        (True, True, "brave-fish", "sample 2026-11-05 02:00:00"),
        (False, False, "brave-fish", "sample 2026-11-05"),
    ],
)
def test_a_run_is_named_by_its_recipe_and_by_what_a_person_called_it(
    deployed: bool, scheduled: bool, named: str, expected: str
) -> None:
    run = FlowRun(
        flow_id=uuid4(),
        deployment_id=uuid4() if deployed else None,
        auto_scheduled=scheduled,
        name=named,
        expected_start_time=datetime(2026, 11, 5, 2, tzinfo=UTC),  # type: ignore[arg-type] (any time will do)
    )
    with FlowRunContext.model_construct(flow_run=run, parameters={"parameters": {"recipe": "sample"}}):
        assert run_name(TrainingForm, lambda form: form.recipe)().startswith(expected)


def test_without_a_source_people_are_drawn_and_with_one_it_is_coco(tmp_path: Path) -> None:
    # With its network, the source need not be opened to count its images.
    own_network = TrainingGroup(assignments=("task.side=96", "task.model.width=0.5"))
    drawn = TrainingForm(recipe="coco_pose", training=TrainingGroup(steps=7))
    given = TrainingForm(recipe="coco_pose", source="coco", training=own_network)
    assert drawn.training_recipe().dataset == drawn.drawn == "coco_sample"
    assert given.drawn is None
    assert PoseSettings.of(given.training_recipe()).side == 96
    asked = conversion(given, open_store(tmp_path), Settings(workers=2, engine="prism"))
    assert (asked.dataset, asked.settings) == ("coco", CocoSettings(side=96))
    assert (asked.engine, asked.workers) == ("prism", 2)
    assert drawn.command("/root") == "podline run coco_pose --root /root --steps 7"


def test_the_command_does_the_same_again(tmp_path: Path) -> None:
    file = tmp_path / "my recipe.py"
    file.write_text("from podline.recipes.settings import *\nRECIPE = Recipe(name='own', dataset='mnist')\n")
    group = TrainingGroup(steps=7, assignments=("model.width=0.5",))
    command = TrainingForm(recipe=str(file), source="my data", training=group).command("/root dir")
    command_line = ["podline", "run", str(file), "--root", "/root dir", "--source", "my data"]
    assert shlex.split(command) == [*command_line, "--steps", "7", "--set", "model.width=0.5"]


def test_a_missing_package_of_weights_ends_a_run_before_its_conversion_unless_the_store_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: ())
    store = open_store(str(tmp_path / "root"))
    pretrained = ("model.kind=efficientnet-lite0", "model.width=1", "model.weights=imagenet")

    def planned(**values: object) -> str:
        group = TrainingGroup.model_validate({"assignments": pretrained, **values})
        return conversion(TrainingForm(recipe="mnist", source="mnist", training=group), store, Settings()).dataset

    with pytest.raises(SettingsError, match=r"^model\.weights=imagenet needs \S+; .* install .*weights=none$"):
        planned(further="champion")
    assert planned(init="weights.npz") == planned(further="mnist-0123456789ab") == "mnist"
    store.publish_bytes(PUBLISHED["efficientnet-lite0"].name, b"the weights")
    assert planned() == "mnist"
