"""Settings of recipes: lengths that convert, bounds that refuse by name, values that change from an epoch on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from small_dataset import publish_dataset, small_recipe

from podline.base.errors import SettingsError
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.pose.settings import PoseAugmentationSettings, PoseSettings
from podline.recipes import registry
from podline.recipes.durations import Duration, Part
from podline.recipes.epochs import Epochs
from podline.recipes.schedule_settings import PlateauSettings
from podline.recipes.settings import FitSettings, Recipe
from podline.stages.from_recipe import training_spec
from podline.stages.options import Choices
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store
from podline.training.plan import plan_training

EPOCHS = Epochs(8068, 128)  # of 63 steps


@pytest.mark.parametrize(
    ("duration", "steps"),
    [
        (Duration(epochs=2), 126),
        (Duration(epochs=0.5), 32),
        (Duration(epochs=0.001), 1),
        (Part(share=0.2), 40),
    ],
)
def test_a_duration_or_a_part_of_200_steps_in_steps(duration: Duration, steps: int) -> None:
    assert (duration.of(200, EPOCHS) if isinstance(duration, Part) else duration.in_steps(EPOCHS)) == steps


def test_a_length_is_given_once() -> None:
    with pytest.raises(ValueError, match="give exactly one of steps, epochs"):
        Duration()
    with pytest.raises(ValueError, match="give exactly one of steps, epochs, share"):
        Part(steps=1, share=0.5)


HELD_OUT = {"validation_share": 0.1}
ADAM_LATER = {"phases": [{"from_epoch": 1, "changes": {"optimizer.kind": "adam"}}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a b"}, "should match pattern"),
        ({"model": {"l2": 0.1}}, "give both or neither"),
        ({"loss": {"gamma": 3}}, r"got gamma=3\.0 with kind=cross_entropy, expected kind=focal; or leave gamma out"),
        (
            {"loss": {"kind": "focal"}, "task": {"label_smoothing": 0.1}},
            r"smoothing=0\.1 needs .* loss\.kind=focal",
        ),
        ({"schedule": {"kind": "plateau"}}, r"plateau vs validation_share=0: .* give validation_share=0\.1"),
        ({"schedule": {"kind": "constant", "final": 0.1}}, "final=0.1 with kind=constant, expected kind=cosine or res"),
        ({"optimizer": {"kind": "muon", "nesterov": False}}, "got nesterov=False with kind=muon, expected kind=sgd"),
        ({"schedule": {"kind": "step", "boundaries": [{"steps": 3}]}}, "got 1 boundaries and 0 shares, expected one"),
        ({"early_stop": {"min_delta": 0.1, "min_delta_share": 0.1}}, "min_delta=0.1 vs min_delta_share=0.1: both"),
        ({"optimizer": {"options": {"weight_decay": 0.1}}}, "weight_decay=0.1, expected optimizer.weight_decay"),
        ({"model": {"kind": "mobilenetv2", "depth": 2}}, "got depth=2 with kind=mobilenetv2, expected kind=resnet; or"),
        ({"early_stop": {}}, r"early_stop vs validation_share=0: .* give validation_share=0\.1"),
        ({"further": "t-0", "init": {"file": "a.npz"}}, r"further=t-0 vs init=a\.npz"),
        (HELD_OUT | {"annealing": {}, "early_stop": {}}, "annealing vs early_stop"),
        (HELD_OUT | ADAM_LATER | {"early_stop": {}}, "from epoch 1: early_stop restores earlier states"),
        (HELD_OUT | ADAM_LATER | {"annealing": {}}, "from epoch 1: annealing restores earlier states"),
    ],
)
def test_values_that_cannot_be_are_refused_where_they_are_written(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Recipe.model_validate({"name": "x", "dataset": "sample", **change})


@pytest.mark.parametrize(
    ("recipe", "changes", "absent"),
    [
        ("mnist", {}, {"keep", "validation_share", "phases"}),
        ("mnist", {"schedule.kind": "plateau", "validation_share": 0.1, "schedule.plateau.factor": 0.5}, {"keep"}),
        ("coco_pose", {}, {"keep", "phases"}),
    ],
)
def test_a_recipe_comes_back_from_its_document_which_leaves_out_what_it_does_not_use(
    recipe: str, changes: dict[str, Any], absent: set[str]
) -> None:
    found = registry.override(registry.get(recipe), changes)
    document = found.model_dump(mode="json")
    assert Recipe.model_validate(document) == found
    assert not absent & document.keys()
    plateau = PlateauSettings(factor=0.5).model_dump() if changes else None
    assert document["schedule"].get("plateau") == plateau, "all its settings, or none"
    specs = [TrainSpec(root="x", recipe=each, fingerprint="y") for each in (found, found.changed(keep="all"))]
    assert specs[0].run == specs[1].run, "which checkpoints are kept is no part of the name"


POSES = {"name": "x", "dataset": "coco", "task": {"side": 64}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"task": {"kind": "classification"}},
            "dataset=coco vs task.kind=classification: expected the data set's kind, pose",
        ),
        ({"dataset": "mnist"}, r"task\.side\n +Extra inputs are not permitted"),
        ({"model": {"kind": "mobilenetv2"}}, "kind pose of dataset=coco has no use for model; set task.model"),
        ({"loss": {"kind": "focal"}}, "has no use for loss; leave loss out"),
        (
            {"phases": [{"from_epoch": 1, "changes": {"augmentation.flip": True}}]},
            "from epoch 1: recipe: the kind pose of dataset=.*has no use for augmentation; set task.augmentation",
        ),
        ({"early_stop": {"metric": "error"}, "validation_share": 0.1}, "error is the share of wrong answers"),
        ({"task": {"side": 72, "targets": {"stride": 16}}}, "side=72 must be a multiple of targets.stride=16"),
        ({"task": {"side": 64, "targets": {"stride": 32}}}, "side=64 must be at least 3 times targets.stride=32"),
        ({"task": {"side": 64, "targets": {"stride": 2}}}, r"stride\n +Input should be a multiple of 4"),
        ({"task": {"side": 64, "augmentation": {"smallest": 1.2}}}, r"smallest=1\.2 must not be above largest=1\.0"),
    ],
)
def test_a_pose_recipe_has_what_poses_need_and_nothing_for_classes(change: dict[str, Any], words: str) -> None:
    assert Recipe.model_validate(POSES).image_augmentation == PoseAugmentationSettings()
    with pytest.raises(ValueError, match=words):
        Recipe.model_validate(POSES | change)


@pytest.mark.parametrize(
    ("duration", "factor", "expected"),
    [
        (Duration(epochs=30), 0.05, "1 epoch"),
        (Duration(epochs=30), 0.0201, "0.6 epochs"),
        (Duration(epochs=30), 1e-6, "0.01 epochs"),
        (Duration(steps=700), 3.001, "2,100 steps"),
        (Duration(steps=1_000_000), 1.5, "1,500,000 steps"),
        (Duration(steps=7), 0.01, "1 step"),
    ],
)
def test_a_duration_is_scaled_in_its_own_unit(duration: Duration, factor: float, expected: str) -> None:
    assert str(duration.scaled(factor)) == expected


PHASES = [
    {"from_epoch": 1, "changes": {"batch_size": 256, "optimizer": {"kind": "adam"}, "trainable_layers": [""]}},
    {"from_epoch": 3, "changes": {"schedule.learning_rate": 0.01, "augmentation.also.fog": 0.5}},
]


def test_a_phase_adds_its_changes_to_those_before_it() -> None:
    first = registry.override(registry.get("mnist"), {"trainable_layers": ["classifier"]})
    recipe = registry.override(first, {"phases": PHASES})
    (_, start), (_, second), (_, third) = recipe.by_phase
    assert ([epoch for epoch, _ in recipe.by_phase], start) == ([0, 1, 3], first)
    assert (second.batch_size, second.optimizer.kind, second.trainable_layers) == (256, "adam", ("",))
    assert second.schedule == first.schedule
    assert (third.batch_size, third.schedule.learning_rate) == (256, 0.01)
    assert third.augmentation.also == {"fog": 0.5}
    document = recipe.model_dump(mode="json")
    assert document["phases"] == PHASES
    assert Recipe.model_validate(document) == recipe


@pytest.mark.parametrize(
    ("phases", "words"),
    [
        ([(3, {"batch_size": 8}), (3, {"batch_size": 9})], "epoch 3 is followed by epoch 3"),
        ([(3, {"batch_size": 0})], "from epoch 3: batch_size: Input should be greater than or equal to 1"),
        (
            [(3, {"seed": 1})],
            "seed cannot change during a run; phases can change: accumulate, augmentation, batch_size",
        ),
        ([(3, {"schedule.kind": "plateau"})], "a plateau is for the whole run"),
        ([(3, {"optimizer.kind": "lionn"})], "there is no optimizer 'lionn'"),
    ],
)
def test_phases_that_cannot_be_are_refused(phases: list[tuple[int, dict[str, Any]]], words: str) -> None:
    given = [{"from_epoch": epoch, "changes": changes} for epoch, changes in phases]
    with pytest.raises(SettingsError, match=words):
        registry.override(registry.get("mnist"), {"phases": given, "validation_share": 0.1})


@pytest.mark.parametrize(("epochs", "begins"), [(10, [0, 3, 6]), (2, [0, 1]), (1, [0]), (0.5, [0])])
def test_a_phase_from_a_share_moves_with_the_length(epochs: float, begins: list[int]) -> None:
    phases = [{"from_share": share, "changes": {"augmentation.pad": round(10 * share)}} for share in (0.3, 0.6)]
    recipe = Recipe.model_validate({"name": "r", "dataset": "d", "phases": phases, "duration": {"epochs": epochs}})
    assert [epoch for epoch, _ in recipe.by_phase] == begins
    assert recipe.by_phase[-1][1].augmentation.pad == 6


def test_a_share_needs_a_length_in_epochs_and_stands_alone() -> None:
    given: dict[str, Any] = {"name": "r", "dataset": "d", "duration": {"steps": 9}}
    shared = {"from_share": 0.5, "changes": {"augmentation.pad": 1}}
    with pytest.raises(ValidationError, match=r"from_share=0\.5 for a run of 9 steps, expected a length in epochs"):
        Recipe.model_validate(given | {"phases": [shared]})
    with pytest.raises(ValidationError, match=r"from_epoch=2 and from_share=0\.5, expected exactly one"):
        Recipe.model_validate(given | {"phases": [shared | {"from_epoch": 2}]})


@given(
    count=st.integers(20, 100),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    gaps=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    step=st.integers(0, 300),
)
def test_places_in_epochs_are_those_that_counting_gives(count, sizes, gaps, step) -> None:
    later = [(sum(gaps[: place + 1]), size) for place, size in enumerate(sizes[1:])]
    epochs = Epochs(count, sizes[0], later)
    epoch = batch = examples = 0
    for _ in range(step):
        size = [size for start, size in [(0, sizes[0]), *later] if start <= epoch][-1]
        examples += size
        batch += 1
        if batch == count // size:
            epoch, batch = epoch + 1, 0
    place = epochs.place(step)
    assert (place.epoch, place.batch) == (epoch, batch)
    assert epochs.examples_before(step) == examples
    assert epochs.epoch_at(step) == pytest.approx(epoch + batch / place.batches)
    assert epochs.step_at(epoch + batch / place.batches) == pytest.approx(step)


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
POSE_RECIPE = registry.get("coco_pose")
CASES = [
    *((CLASSES, path) for path in numeric_paths(Recipe, ClassificationSettings) if not path.startswith("annealing")),
    *((ANNEALED, path) for path in numeric_paths(Recipe, ClassificationSettings) if path.startswith("annealing")),
    *((POSE_RECIPE, path) for path in numeric_paths(Recipe, PoseSettings) if path.startswith("task.")),
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
            if recipe is POSE_RECIPE:
                assert TrainSpec(root="x", recipe=changed, fingerprint="y").run
            else:
                plan_training(training_spec(store, changed, manifest.fingerprint, "cpu").recipe, manifest)
        except SettingsError as refused:
            refusals[path] = str(refused)
    for path, told in refusals.items():
        assert path.rpartition(".")[2] in told or path.partition(".")[0] in told, (path, told)
    assert refusals.keys() == {path for _, path in CASES} or value.isdigit(), "some numbers may be large"


@pytest.mark.parametrize(
    ("words", "got"),
    [
        ("optimizer.clip_norm=Infinity", "optimizer.clip_norm=inf"),
        ('augmentation.also={"noise": [1, NaN]}', "augmentation.also.noise.1=nan"),
    ],
)
def test_infinity_is_refused_where_no_bound_is_in_the_way(words: str, got: str) -> None:
    with pytest.raises(SettingsError, match=f"got {got}, expected a finite number; give None if it can be off$"):
        Choices(assignments=(words,)).apply(CLASSES)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (f"train sample --batch-size {10**7}", "--batch-size"),
        ("train sample --learning-rate nan", "got 'nan', expected a number above 0 and of at most 1000."),
        ("train sample --steps 1.5", "--steps': got '1.5', expected a whole number above 0"),
        ("train sample --hosts 4..2", "--hosts': got '4..2', expected a number of hosts, or a range"),
        (f"runs list --last {10**20}", "--last': '100000000000000000000' is too large"),
    ],
)
def test_an_option_has_the_bounds_of_its_setting(podline: Callable[..., Any], words: str, told: str) -> None:
    found = podline(*words.split())
    assert (found.code, told in found.err, found.err.count("\n")) == (2, True, 1), found.err
