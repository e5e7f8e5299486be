"""XLA compiles the steps of every shipped recipe, as a TPU needs it, and computes what TensorFlow computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import small_poses
from small_dataset import FINGERPRINT, publish

from podline.documents.manifest import Manifest
from podline.documents.skeleton import COCO, SKELETON
from podline.kinds.pose.settings import PoseSettings
from podline.recipes import registry
from podline.recipes.durations import Duration
from podline.recipes.settings import Recipe
from podline.store.opening import open_store
from podline.training.run import Trainer, build_trainer, configure_process

BATCH = 8
SHAPES = {"cifar100": (100, 32, 3), "mnist": (10, 28, 1), "images": (5, 64, 3), "labels": (5, 64, 3)}


@pytest.mark.long
@pytest.mark.parametrize("name", registry.names())
def test_the_compiled_steps_of_a_recipe_compute_the_same(name: str, tmp_path: Path) -> None:
    usual, manifest = _recipe_and_data(name, tmp_path)
    results = []
    for jit in (False, True):
        recipe = usual.changed(jit=jit)
        folder = f"datasets/{recipe.dataset}/{FINGERPRINT}"
        trainer = build_trainer(open_store(tmp_path), folder, recipe, manifest, configure_process(recipe, "cpu"))
        results.append(_losses(trainer))
    # bfloat16 has eight bits.
    np.testing.assert_allclose(results[0], results[1], rtol=2e-3 if usual.precision == "float32" else 1e-2)


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


def _recipe_and_data(name: str, root: Path) -> tuple[Recipe, Manifest]:
    """Return a shipped recipe with small batches, and a few examples of its own size."""
    recipe = registry.get(name)
    values = {"batch_size": BATCH, "validation_share": 0.0, "early_stop": None, "fit": None}
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
