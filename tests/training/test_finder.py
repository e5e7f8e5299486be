"""The finder reads a rate off a curve, leaves its evidence, and changes no run."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from dying_runs import lively_recipe
from small_dataset import FINGERPRINT, publish_dataset

from podline import notebook
from podline.base.errors import ArtifactError, DivergenceError, SettingsError, StoreError
from podline.base.progress import silent
from podline.recipes.settings import OptimizerSettings, Recipe, ScheduleSettings
from podline.stages.options import Choices
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store
from podline.training.finder import LEAST_STEPS, explodes_at, find_learning_rate, require_obedient, suggest
from podline.training.optimizers import build_optimizer
from podline.training.searches import learning_rate_spec
from podline.training.train import train

RECIPE = lively_recipe(
    duration={"steps": 20}, schedule={"kind": "constant", "learning_rate": 0.002}, checkpoint_steps=10
)


def search(root: Path, recipe: Recipe = RECIPE, **values: Any) -> Any:
    return notebook.find_learning_rate(recipe, str(root), **{"steps": 60, "low": 1e-5, "high": 1.0} | values)


def losses(root: Path, found: Any) -> list[float]:
    return json.loads((root / found.folder / "finder.json").read_text())["losses"]


def test_a_search_leaves_a_curve_a_chart_and_word_that_it_is_done(root: Path) -> None:
    found = search(root)
    assert 1e-5 < found.learning_rate < 1.0
    assert found.recipe_rate == 0.002
    document = json.loads((root / found.folder / "finder.json").read_text())
    rates = document["rates"]
    assert len(rates) == len(document["losses"]) == found.steps <= 60
    assert rates == pytest.approx(1e-5 * 1e5 ** (np.arange(len(rates)) / 59))
    assert document["suggestion"]["learning_rate"] == found.learning_rate
    assert search(root) == found.model_copy(update={"reused": True})
    (root / found.chart).unlink()
    made_again = search(root)
    assert (made_again.reused, made_again.learning_rate) == (False, found.learning_rate)
    assert {path.name for path in root.iterdir()} <= {"datasets", "finder", ".podline", "podline-store.json"}


def test_a_search_from_a_run_begins_with_its_state_and_changes_no_byte_of_it(root: Path) -> None:
    run = train(TrainSpec(root=str(root), recipe=RECIPE, fingerprint=FINGERPRINT), silent())
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (root / run.folder).rglob("*.*")}
    found = search(root, run=run.run)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (root / run.folder).rglob("*.*")} == before
    # Weights that have learned begin with a lower loss than fresh ones, on the batches that come next in the run.
    assert losses(root, found)[0] < losses(root, search(root))[0]
    other = Choices(assignments=("optimizer.kind=adam",))
    search_spec = learning_rate_spec(open_store(root), RECIPE, silent(), run=run.run, choices=other)
    publish_dataset(root, fingerprint="a" * 16)
    with pytest.raises(SettingsError, match=f"got fingerprint=aaa, but run {run.run} was trained on .* {FINGERPRINT}"):
        learning_rate_spec(open_store(root), RECIPE, silent(), run=run.run, fingerprint="aaa")
    with pytest.raises(ArtifactError, match=rf"run {run.run}: the checkpoint of step 20 .* or search without --run"):
        find_learning_rate(search_spec, silent())


def test_a_run_that_is_not_there_or_has_no_checkpoint_is_one_clear_line(root: Path) -> None:
    with pytest.raises(StoreError, match=r"nobody/spec\.json does not exist; `podline runs list`"):
        search(root, run="nobody")
    spec = TrainSpec(root=str(root), recipe=RECIPE, fingerprint=FINGERPRINT)
    open_store(root).publish_json(f"{spec.folder}/spec.json", spec.model_dump(mode="json"))
    with pytest.raises(StoreError, match="has no complete checkpoint"):
        search(root, run=spec.run)
    with pytest.raises(SettingsError, match="trained on sample, but recipe t is for mnist"):
        search(root, RECIPE.model_copy(update={"dataset": "mnist"}), run=spec.run)


@pytest.mark.parametrize("kind", ["sgd", "adam", "rmsprop", "adafactor", "muon"])
def test_our_optimizers_do_what_the_rate_says(kind: Any) -> None:
    settings = OptimizerSettings(kind=kind, weight_decay=0.01, clip_norm=1.0)
    require_obedient(functools.partial(build_optimizer, settings), 1e-5, 10.0, 300)


def test_an_optimizer_that_overrules_the_rate_is_refused() -> None:
    def capped(variables: list[keras.Variable]) -> keras.optimizers.Optimizer:
        optimizer = keras.optimizers.Adafactor(relative_step=False)
        optimizer.build(variables)
        return optimizer

    with pytest.raises(SettingsError, match=r"Adafactor: at step 300 a rate 1e\+06 times as high makes a .* choose"):
        require_obedient(capped, 1e-5, 10.0, 300)


ONE_CYCLE = ScheduleSettings(kind="one_cycle")
STEPS = 300
RATES = np.geomspace(1e-5, 10, STEPS)


def valley(low: float, high: float, noise: float = 0.1) -> list[float]:
    """A loss that falls from 2.3 around a rate and rises again around a higher one."""
    x = np.log(RATES)
    fall = 1.5 / (1 + np.exp(-2 * (x - math.log(low))))
    rise = 3 / (1 + np.exp(-3 * (x - math.log(high))))
    return (2.3 - fall + rise + np.random.default_rng(0).normal(0, noise, STEPS)).tolist()


def test_an_explosion_is_a_loss_far_above_the_lowest_or_no_number() -> None:
    calm = [2.0, *[1.0] * 29]
    assert explodes_at(calm) is None
    assert explodes_at([*calm, math.nan, 1.0]) == 30
    assert explodes_at([*calm, math.inf]) == 30
    assert explodes_at([math.nan]) == 0
    assert explodes_at([*calm, *[20.0] * 10]) in (31, 32, 33)
    assert explodes_at([*(loss - 5.0 for loss in calm), *[60.0] * 10]) in (31, 32, 33)
    assert explodes_at([0.01, *[0.1, 0.01] * 30]) is None, "small losses that differ by much are no explosion"


@pytest.mark.parametrize("moved", [0.0, 9.0])
def test_the_suggestion_is_the_middle_of_the_valleys_floor_also_below_zero(moved: float) -> None:
    found = suggest(RATES.tolist(), (np.array(valley(0.01, 3.0)) - moved).tolist(), ONE_CYCLE)
    low, high = found.floor or (0.0, 0.0)
    # Nine tenths of the fall are done at exp(ln(9) / 2) = 3 times 0.01, and one of them is lost again at
    # exp(-ln(19) / 3) = 0.37 times 3; smoothing takes a little off either side of the floor.
    assert 0.02 < low < 0.06
    assert 0.4 < high < 1.6
    assert low < found.learning_rate < high
    assert 0.1 < found.learning_rate < 0.6
    assert found.blow_up == pytest.approx(2.3, rel=0.5)


def test_a_cliff_right_after_the_fall_keeps_the_suggestion_below_a_quarter_of_it() -> None:
    losses = np.array(valley(0.01, 1e9, noise=0.02))
    losses[RATES > 0.06] = 50.0
    end = 5 + (explodes_at(losses.tolist()) or STEPS)
    found = suggest(RATES[:end].tolist(), losses[:end].tolist(), ONE_CYCLE)
    assert found.learning_rate <= (found.blow_up or 0.0) / 4 * 1.05
    assert any("lowered to a quarter of that" in reason for reason in found.reasons)


def test_trained_weights_get_a_rate_that_does_not_spoil_them() -> None:
    losses = valley(1e9, 0.5, noise=0.05)
    found = suggest(RATES.tolist(), losses, ONE_CYCLE)
    assert found.floor is None
    assert found.learning_rate == pytest.approx((found.blow_up or 0.0) / 4, rel=0.05)
    assert "trained already" in found.reasons[0]


def test_a_curve_that_says_nothing_is_an_error() -> None:
    noise = np.random.default_rng(0).normal(2.3, 0.1, STEPS).tolist()
    with pytest.raises(DivergenceError, match=r"neither falls nor rises from 2\.\d+ with rates from 1e-05 to 10"):
        suggest(RATES.tolist(), noise, ONE_CYCLE)
    with pytest.raises(DivergenceError, match="neither falls nor rises from 0 with rates"):
        suggest(RATES.tolist(), [0.0] * STEPS, ONE_CYCLE)
    with pytest.raises(DivergenceError, match=f"exploded after 5 steps with rates .* expected at least {LEAST_STEPS}"):
        suggest(RATES[:5].tolist(), [2.0] * 5, ONE_CYCLE)
