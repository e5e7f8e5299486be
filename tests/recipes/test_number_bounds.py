"""Every number of a recipe has bounds: a value is refused by its name, or a training can be planned with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel
from small_dataset import publish_dataset, small_recipe

from podline.base.errors import SettingsError
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.pose.settings import PoseSettings
from podline.recipes import registry
from podline.recipes.schedule_settings import PlateauSettings
from podline.recipes.settings import FitSettings, Recipe
from podline.stages.from_recipe import training_spec
from podline.stages.options import Choices
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store
from podline.training.plan import plan_training

EXTREMES = ("Infinity", "-Infinity", "NaN", "-1", str(2**32), str(10**20), str(10**400))
# None of them has numbers by default.
SECTIONS: dict[str, Any] = {"validation_share": 0.25, "early_stop": {}, "schedule": {"kind": "plateau"}}


def numeric_paths(model: type[BaseModel], task: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of each number of a recipe of a kind."""
    for name, field in model.model_fields.items():
        for kind in kinds_in(task if name == "task" else field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from numeric_paths(kind, task, f"{prefix}{name}.")
            elif kind in (int, float):
                yield f"{prefix}{name}"


def kinds_in(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value of an annotation may have, without those inside of tuples and tables."""
    if get_origin(annotation) in (Union, UnionType):
        yield from itertools.chain.from_iterable(map(kinds_in, get_args(annotation)))
    else:
        yield get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


CLASSES = small_recipe(**SECTIONS, fit=FitSettings())
ANNEALED = registry.override(small_recipe(validation_share=0.25), {"annealing": {}})
POSES = registry.get("coco_pose")
CASES = [
    *((CLASSES, path) for path in numeric_paths(Recipe, ClassificationSettings) if not path.startswith("annealing")),
    *((ANNEALED, path) for path in numeric_paths(Recipe, ClassificationSettings) if path.startswith("annealing")),
    *((POSES, path) for path in numeric_paths(Recipe, PoseSettings) if path.startswith("task.")),
]
assert isinstance(CLASSES.schedule.plateau, PlateauSettings)
assert {path for _, path in CASES} >= {"seed", "keep", "promotion.margin", "optimizer.clip_norm", "annealing.final"}


@pytest.mark.parametrize("value", EXTREMES)
def test_a_number_is_refused_by_name_or_a_training_is_planned_with_it(value: str, tmp_path: Path) -> None:
    manifest, store = publish_dataset(tmp_path), open_store(tmp_path)
    refusals: dict[str, str] = {}
    for recipe, path in CASES:
        try:
            changed = Choices(assignments=(f"{path}={value}",)).apply(recipe)
            if recipe is POSES:
                assert TrainSpec(root="x", recipe=changed, fingerprint="y").run
            else:
                plan_training(training_spec(store, changed, manifest.fingerprint, "cpu").recipe, manifest)
        except SettingsError as refused:
            refusals[path] = str(refused)
    for path, told in refusals.items():
        assert path.rpartition(".")[2] in told or path.partition(".")[0] in told, (path, told)
    assert refusals.keys() == {path for _, path in CASES} or value.isdigit(), "some numbers may be large"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("optimizer.clip_norm=Infinity", "optimizer.clip_norm=inf: expected a finite number, or None for off"),
        ('augmentation.also={"noise": [1, NaN]}', "augmentation.also.noise.1=nan: expected a finite number"),
    ],
)
def test_infinity_is_refused_where_no_bound_is_in_the_way(words: str, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Choices(assignments=(words,)).apply(CLASSES)
    assert str(refused.value) == f"recipe t: {message}" or str(refused.value).endswith(message)


def test_a_recipe_file_and_an_option_have_the_same_bounds(
    podline: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wide.py").write_text(
        "from podline.recipes.settings import *\n"
        "RECIPE = Recipe(name='x', dataset='sample', optimizer=OptimizerSettings(weight_decay=float('inf')))\n"
    )
    for words, told in {
        "train wide.py": "optimizer.weight_decay=inf: expected a finite number",
        f"train sample --batch-size {10**7}": "--batch-size",
        "train sample --learning-rate nan": "got 'nan', expected a number above 0 and of at most 1000.",
        "tune search sample --over optimizer.weight_decay=0..Infinity": "optimizer.weight_decay",
        "run sample --epochs abc": "--epochs': got 'abc', expected a number above 0 and of at most 100000.",
        "train sample --steps 1.5": "--steps': got '1.5', expected a whole number above 0",
        "train sample --hosts 4..2": "--hosts': got '4..2', expected a number of hosts, or two in order",
        f"runs list --last {10**20}": "--last': '100000000000000000000' is too large",
    }.items():
        found = podline(*words.split())
        assert (found.code, told in found.err, found.err.count("\n")) == (2, True, 1), found.err
    assert {path.name for path in tmp_path.iterdir()} <= {"wide.py", "__pycache__"}, "no store"
