"""Runs that are really trained and evaluated, on the small data set, and finished ones that never learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from metrics import train_result
from small_dataset import FINGERPRINT, small_recipe

from podline.base.progress import silent
from podline.documents.manifest import Manifest
from podline.evaluation.evaluate import evaluate
from podline.ledger.recording import recorded
from podline.recipes.durations import Duration
from podline.recipes.settings import Recipe
from podline.settings.machine import Settings
from podline.stages.completed import complete
from podline.stages.specs import SPEC, EvaluateSpec, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.export import export_model
from podline.training.run import configure_process, initial_model
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


def untrained(root: Path, recipe: Recipe, manifest: Manifest) -> TrainSpec:
    """Put a finished run with initial weights into a store; return its spec. No training step is traced."""
    store, spec = open_store(root), TrainSpec(root=str(root), recipe=recipe, fingerprint=manifest.fingerprint)
    model = initial_model(recipe, manifest, configure_process(recipe))
    sha256 = export_model(store, spec.folder, model, np.zeros((1, *manifest.image_shape), np.uint8))
    store.publish_json(f"{spec.folder}/{SPEC}", spec.model_dump(mode="json"))
    complete(store, spec.folder, spec, train_result(spec, sha256), [])
    return spec
