"""XLA compiles the steps of every shipped recipe, as a TPU needs it, and computes what TensorFlow computes."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import small_poses
from small_dataset import FINGERPRINT, publish

from podline.documents.manifest import Manifest
from podline.documents.skeleton import COCO, SKELETON
from podline.input.pipeline import EvaluationInput
from podline.kinds.pose.settings import PoseSettings
from podline.recipes import registry
from podline.recipes.durations import Duration
from podline.recipes.settings import Recipe
from podline.store.opening import open_store
from podline.training.run import Trainer, build_trainer, configure_process
from podline.training.steps import ScoringSteps

BATCH = 8
SHAPES = {"cifar100": (100, 32, 3), "mnist": (10, 28, 1), "images": (5, 64, 3), "labels": (5, 64, 3)}


@pytest.mark.long
@pytest.mark.parametrize("name", registry.names())
def test_the_compiled_steps_of_a_recipe_compute_the_same(name: str, tmp_path: Path) -> None:
    usual, manifest = _recipe_and_data(name, tmp_path)
    results, compiled = [], 0.0
    for jit in (False, True):
        recipe = usual.changed(jit=jit)
        folder = f"datasets/{recipe.dataset}/{FINGERPRINT}"
        trainer = build_trainer(open_store(tmp_path), folder, recipe, manifest, configure_process(recipe, "cpu"))
        before = time.perf_counter()
        results.append([*_losses(trainer), _score(trainer)])
        compiled = time.perf_counter() - before
    # bfloat16 has eight bits.
    np.testing.assert_allclose(results[0], results[1], rtol=2e-3 if usual.precision == "float32" else 1e-2)
    # `make test-long` shows it; docs/explanation/tpu.md has a table.
    print(f"{name}: {len(trainer.plan.phases)} phases, {manifest.image_shape}, compiled and run in {compiled:.0f} s")  # noqa: T201


def _losses(trainer: Trainer) -> list[float]:
    """Return the loss and the norm of the gradient of a first step in each phase, from the same state."""
    found: list[float] = []
    before = trainer.state.snapshot()
    for phase in trainer.plan.phases:
        batches = trainer.batches(phase)
        parts = trainer.strategy.distribute_datasets_from_function(
            lambda context, phase=phase, batches=batches: batches.dataset(phase.first, phase.end, context=context)
        )
        steps = trainer.training_steps(parts, phase, rate=lambda _step: 0.01)
        done = steps.advance(1)
        found += [float(done.series["loss"][0]), float(done.series["gradient_norm"][0])]
        trainer.state.restore(before)
    return found


def _score(trainer: Trainer) -> float:
    reader, objective = trainer.training_reader, trainer.objective.evaluated
    batches = EvaluationInput(reader, trainer.manifest, trainer.objective.fields, batch_size=BATCH)
    parts = trainer.strategy.distribute_datasets_from_function(batches.dataset)
    steps = ScoringSteps(trainer.strategy, trainer.state.evaluated, objective, jit=trainer.recipe.jit)
    score = steps.score(parts, 1, lambda _batch: True)
    assert score is not None
    return score.loss


def _recipe_and_data(name: str, root: Path) -> tuple[Recipe, Manifest]:
    """Return a shipped recipe with small batches, and a few examples of its own size."""
    recipe = registry.get(name)
    values = {
        "batch_size": BATCH,
        "evaluation_batch_size": BATCH,
        "validation_share": 0.0,
        "early_stop": None,
        "fit": None,
    }
    recipe = recipe.changed(**values, duration=Duration(epochs=max(len(recipe.by_phase), 1) * 20))
    count = 2 * BATCH
    if isinstance(recipe.task, PoseSettings):
        columns = small_poses.drawn(count, 0, recipe.task.side)
        facts = {SKELETON: COCO.model_dump(mode="json")}
        splits = {"train": columns, "test": columns}
        return recipe, publish(root, recipe.dataset, (), splits, shard_records=count, kind="pose", facts=facts)
    classes, side, channels = SHAPES.get(recipe.dataset, (10, 32, 3))
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (count, side, side, channels), np.uint8)
    names = tuple(f"class {number}" for number in range(classes))
    if recipe.task.kind == "labels":
        columns = {"image": images, "labels": random.integers(0, 2, (count, classes), np.uint8)}
        manifest = publish(
            root, recipe.dataset, (), {"train": columns, "test": columns}, shard_records=count, kind="labels"
        )
        return recipe, manifest.changed(class_names=names)
    columns = {"image": images, "label": random.integers(0, classes, count)}
    return recipe, publish(root, recipe.dataset, names, {"train": columns, "test": columns}, shard_records=count)
