"""Runs that are really trained and evaluated, on the small data set; a linear model takes a second or two."""

from __future__ import annotations

from typing import Any

from small_dataset import FINGERPRINT, small_recipe

from podline.evaluation.evaluate import evaluate
from podline.ledger.recording import recorded
from podline.progress import silent
from podline.recipes.durations import Duration
from podline.settings import Settings
from podline.stages.specs import EvaluateSpec, TrainSpec
from podline.store.contract import Store
from podline.training.train import train


def trained(store: Store, seed: int, fingerprint: str = FINGERPRINT, **values: Any) -> str:
    """Train and evaluate the recipe ``t``; return the run's name."""
    usual = {"duration": Duration(epochs=6), "batch_size": 32, "evaluate_every": None}
    recipe = small_recipe(seed=seed, **(usual | values))
    asked = TrainSpec(root=store.uri, recipe=recipe, fingerprint=fingerprint, preflight=False)
    with recorded(store, "t", "commands", silent()) as notes:
        notes.planned(recipe, Settings(), "cpu")
        notes.asked(asked)
        result = train(asked, silent())
        notes.answered(asked, result, result.seconds)
        notes.dropped = True
    judging = {"run": result.run, "dataset": "sample", "weights_sha256": result.weights_sha256}
    evaluate(EvaluateSpec(root=store.uri, fingerprint=fingerprint, **judging), silent())
    return result.run
