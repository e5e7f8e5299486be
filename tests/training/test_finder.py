"""The learning-rate finder on a small data set: what it leaves, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from small_dataset import FINGERPRINT, small_recipe

from podline import notebook
from podline.errors import ArtifactError, SettingsError, StoreError
from podline.options import Choices
from podline.progress import silent
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings, OptimizerSettings, Recipe, ScheduleSettings
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store
from podline.training import finder
from podline.training.finder import find_learning_rate, require_obedient
from podline.training.optimizers import build_optimizer
from podline.training.run import Trainer, build_trainer
from podline.training.searches import learning_rate_spec
from podline.training.state import weights
from podline.training.train import train

RECIPE = small_recipe(
    model=ModelSettings(kind="linear", dropout=0.2),
    duration=Duration(steps=20),
    schedule=ScheduleSettings(kind="constant", learning_rate=0.002),
    ema_decay=0.9,
    checkpoint_steps=10,
    deterministic=True,
)


def search(root: Path, recipe: Recipe = RECIPE, **values: Any) -> Any:
    return notebook.find_learning_rate(recipe, str(root), **{"steps": 60, "low": 1e-5, "high": 1.0} | values)


def losses(root: Path, found: Any) -> list[float]:
    return json.loads((root / found.folder / "finder.json").read_text())["losses"]


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and the time of its last change."""
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_a_search_leaves_a_curve_a_chart_and_word_that_it_is_done(root: Path) -> None:
    found = search(root)
    assert 1e-5 < found.learning_rate < 1.0
    assert found.recipe_rate == 0.002
    assert (root / found.chart).read_bytes().startswith(b"\x89PNG")
    document = json.loads((root / found.folder / "finder.json").read_text())
    rates = document["rates"]
    assert len(rates) == len(document["losses"]) == found.steps <= 60
    assert rates == pytest.approx(1e-5 * 1e5 ** (np.arange(len(rates)) / 59))
    assert document["suggestion"]["learning_rate"] == found.learning_rate
    assert search(root) == found.model_copy(update={"reused": True})
    (root / found.chart).unlink()
    made_again = search(root)
    assert (made_again.reused, made_again.learning_rate) == (False, found.learning_rate)
    assert {path.name for path in root.iterdir()} <= {"datasets", "finder", ".podline"}


def test_a_search_from_a_run_begins_with_its_state_and_changes_no_byte_of_it(root: Path) -> None:
    run = train(TrainSpec(root=str(root), recipe=RECIPE, fingerprint=FINGERPRINT), silent())
    before = files(root / run.folder)
    found = search(root, run=run.run)
    assert files(root / run.folder) == before
    # Weights that have learned begin with a lower loss than fresh ones, on the batches that come next in the run.
    assert losses(root, found)[0] < losses(root, search(root))[0]
    other = Choices(assignments=("optimizer.kind=adam",))
    search_spec = learning_rate_spec(open_store(root), RECIPE, silent(), run=run.run, choices=other)
    with pytest.raises(ArtifactError, match=rf"run {run.run}: the checkpoint of step 20 .* or search without --run"):
        find_learning_rate(search_spec, silent())


def test_a_search_trains_the_layers_of_the_recipe_and_no_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Trainer] = []
    monkeypatch.setattr(finder, "build_trainer", lambda *given: made.append(build_trainer(*given)) or made[-1])
    values: dict[str, Any] = {"model": ModelSettings(width=0.1), "trainable_layers": ("classifier",)}
    recipe = RECIPE.model_copy(update=values)
    search(root, recipe, high=10.0)
    [after] = made
    before = build_trainer(open_store(root), f"datasets/sample/{FINGERPRINT}", recipe, after.manifest, after.strategy)
    changed = {
        path.partition("/")[0]
        for path, value in weights(before.state.model).items()
        if not np.array_equal(value, weights(after.state.model)[path])
    }
    assert changed == {"classifier"}


def test_a_run_that_is_not_there_or_has_no_checkpoint_is_one_clear_line(root: Path) -> None:
    with pytest.raises(StoreError, match=r"nobody/spec\.json is not there; `podline runs list`"):
        search(root, run="nobody")
    spec = TrainSpec(root=str(root), recipe=RECIPE, fingerprint=FINGERPRINT)
    open_store(root).publish_json(f"{spec.folder}/spec.json", spec.model_dump(mode="json"))
    with pytest.raises(StoreError, match="has no complete checkpoint"):
        search(root, run=spec.run)
    with pytest.raises(SettingsError, match="trained on sample vs mnist"):
        search(root, RECIPE.model_copy(update={"dataset": "mnist"}), run=spec.run)


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw", "rmsprop", "adafactor", "muon"])
def test_our_optimizers_do_what_the_rate_says(kind: Any) -> None:
    settings = OptimizerSettings(kind=kind, weight_decay=0.01, clip_norm=1.0)
    require_obedient([build_optimizer(settings) for _ in range(2)], 1e-5, 10.0, 300)


def test_an_optimizer_that_overrules_the_rate_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"Adafactor: at step 300 a rate 1e\+06 times as high makes a .* choose"):
        require_obedient([keras.optimizers.Adafactor(relative_step=False) for _ in range(2)], 1e-5, 10.0, 300)
