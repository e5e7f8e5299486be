"""Trainings that go on from the champion: which model that is, stays, and what it has learned counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish_dataset, small_recipe
from trained_runs import trained

from podline.base.errors import SettingsError
from podline.base.progress import silent
from podline.champions.promote import promote
from podline.commands.models import _spec as promotion_of
from podline.documents.champions import Candidate, champion, crown
from podline.ledger.inventory.verification import verify
from podline.recipes.settings import ModelSettings, Recipe
from podline.search.suspects.folds import fold_specs
from podline.stages.from_recipe import training_spec
from podline.stages.options import Choices
from podline.stages.specs import PromoteResult, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.searches import learning_rate_spec

GROWN, NEWEST = "aaaa456789abcdef", "bbbb456789abcdef"
RECIPE = small_recipe(further="champion")
pytestmark = pytest.mark.usefixtures("few_layers")


def published(store: Store, fingerprint: str, names: tuple[str, ...] = CLASS_NAMES, **splits: Any) -> None:
    splits = {"train": drawn(96, 0), "test": drawn(120, 1)} | splits
    publish_dataset(store.uri, splits=splits, fingerprint=fingerprint, class_names=names)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with two versions of a data set."""
    store = open_store(tmp_path)
    for fingerprint in (FINGERPRINT, GROWN):
        published(store, fingerprint)
    return store


def planned(store: Store, fingerprint: str, recipe: Recipe = RECIPE) -> tuple[TrainSpec, list[str]]:
    told = list[str]()
    return training_spec(store, recipe, fingerprint, "cpu", told.append), told


def crowned(store: Store, run: str) -> None:
    crown(store, "t", Candidate(run, "w" * 64, "sample", FINGERPRINT), champion(store, "t"), "promoted")


def left(store: Store, recipe: Recipe, fingerprint: str = FINGERPRINT) -> str:
    """A run's spec without anything else."""
    spec = TrainSpec(root=store.uri, recipe=recipe, fingerprint=fingerprint)
    store.publish_json(f"{spec.folder}/spec.json", spec.model_dump(mode="json"))
    return spec.run


def test_the_champion_is_looked_up_when_a_training_is_first_planned_and_then_stays(store: Store) -> None:
    first, told = planned(store, FINGERPRINT)
    assert (first.recipe.further, first.lacked_champion) == (None, True)
    assert told == ["from scratch: t has no champion yet"]
    assert first.run == training_spec(store, small_recipe(), FINGERPRINT, "cpu").run, "a name tells of content alone"
    crowned(store, base := left(store, first.recipe))
    again, _ = planned(store, FINGERPRINT)
    assert again == first, "the same night is the same run, though there is a champion now"

    second, told = planned(store, GROWN)
    assert (second.recipe.further, second.lacked_champion) == (base, False)
    assert told == [f"further from the champion, {base}"]
    crowned(store, left(store, small_recipe(seed=7)))
    assert planned(store, GROWN)[0] == second
    other, _ = planned(store, GROWN, RECIPE.changed(seed=1))
    assert other.recipe.further == champion(store, "t").run != base
    assert not [line for line in verify(store, silent()).problems if "models/" in line]


def test_a_search_begins_with_the_champion_and_the_parts_of_suspects_do_not(store: Store) -> None:
    crowned(store, run := left(store, small_recipe()))
    choices = Choices()
    assert learning_rate_spec(store, RECIPE, silent(), choices=choices).recipe.further == run
    assert {spec.recipe.further for spec in fold_specs(store, RECIPE, silent(), parts=2)} == {None}


def test_a_champion_that_does_not_fit_is_one_error(store: Store) -> None:
    crowned(store, run := left(store, small_recipe()))
    with pytest.raises(SettingsError, match=rf"model.kind differ: linear \(champion {run}\) vs resnet"):
        planned(store, GROWN, RECIPE.changed(model=ModelSettings(kind="resnet")))
    published(store, NEWEST, (*CLASS_NAMES, "new"))
    with pytest.raises(SettingsError, match=rf"classes .* differ: \[\] \(champion {run}\) vs \['new'\]"):
        planned(store, NEWEST)


def test_what_a_champion_and_those_before_it_learned_is_no_test_example(store: Store) -> None:
    def night(fingerprint: str, seed: int) -> PromoteResult:
        spec, _ = planned(store, fingerprint, RECIPE.changed(seed=seed))
        run = trained(store, seed, fingerprint, further=spec.recipe.further)
        return promote(promotion_of(store, run, (), anyway=False, reason=""), silent())

    assert night(FINGERPRINT, 0).promoted
    published(store, GROWN, train=drawn(96, 5))
    assert night(GROWN, 1).promoted
    first, test = drawn(96, 0), drawn(120, 1)
    learned = {name: [*test[name], *first[name][4:6]] for name in test}
    published(store, NEWEST, train=drawn(96, 6), test={k: np.array(v) for k, v in learned.items()})
    last = night(NEWEST, 2)
    assert last.verdict == "refused"
    said = f"found 2 test examples of sample-{NEWEST} (test[120], test[121]) among the training examples of"
    assert said in last.refusals[0]
