"""The learning-rate finder: trains a copy of the state at a rising rate.

It writes ``finder.json``, ``chart.png`` and, last, its completion record to ``finder/<recipe>-<digest>``. A run whose
checkpoint it starts from stays unchanged, byte for byte.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from podline.documents.manifest import read_manifest
from podline.errors import ArtifactError, SettingsError
from podline.inventory.catalogue import training_of
from podline.plurals import plural
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.stages.completed import complete, manifest_sha256
from podline.stages.tools import LearningRateResult, LearningRateSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.checkpoints import CheckpointFolder
from podline.training.optimizers import build_optimizer
from podline.training.rate_search import Suggestion, explodes_at, rate_chart, suggest
from podline.training.run import Trainer, build_trainer, prepared

DOCUMENT, CHART = "finder.json", "chart.png"
# Steps between two checks of the loss. The rate grows by a few percent per step, so a late check costs little.
_STEPS_AT_ONCE = 10
# Tolerance between the ratio of two step sizes and the ratio of their rates.
_TOLERANCE = 0.01
Build = Callable[[list[keras.Variable]], keras.optimizers.Optimizer]


def find_learning_rate(spec: LearningRateSpec, reporter: Reporter) -> LearningRateResult:
    """Train at a rising rate until the loss explodes, and read a learning rate off the curve.

    Raises:
        StoreError: the data set or the run does not exist.
        SettingsError: recipe and data or devices do not fit, or the optimizer ignores the learning rate.
        ArtifactError: the data set or the checkpoint has changed.
        DivergenceError: the loss exploded at once, or never fell.
    """
    started = time.monotonic()
    store = open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder, spec.manifest_digest)
    strategy = prepared(spec.recipe, spec.strategy)
    trainer = build_trainer(store, spec.dataset_folder, spec.recipe, manifest, strategy, reporter)
    if spec.run:
        _restore(spec, store, trainer)
    elif taken := trainer.begin():
        reporter.log(f"the initial weights are those of {taken}")
    elif trainer.base:
        reporter.log(trainer.base.in_words)
    first = trainer.state.step
    trainer = trainer.in_phase_of(first)
    build = functools.partial(build_optimizer, trainer.recipe.optimizer)
    require_obedient(build, spec.low, spec.high, trainer.state.steps_before + first + spec.steps)
    rates = np.geomspace(spec.low, spec.high, spec.steps).tolist()
    losses = _losses(trainer, first, rates, reporter)
    rates = rates[: len(losses)]
    found = suggest(rates, losses, trainer.recipe.schedule)
    return _finish(spec, store, rates, losses, found, time.monotonic() - started)


def _restore(spec: LearningRateSpec, store: Store, trainer: Trainer) -> None:
    training = training_of(store, spec.run)
    folder = CheckpointFolder(store, training.folder, training.digest())
    checkpoint = folder.describe(spec.checkpoint_step)
    if checkpoint.sha256 != spec.checkpoint_sha256:
        raise SettingsError(
            f"run {spec.run}: the checkpoint of step {spec.checkpoint_step} has sha256 {checkpoint.sha256[:12]}… vs "
            f"{spec.checkpoint_sha256[:12]}… in the request; give the command again"
        )
    try:
        trainer.restore(folder.arrays(checkpoint))
    except ArtifactError as error:
        raise ArtifactError(
            f"run {spec.run}: the checkpoint of step {spec.checkpoint_step} cannot be restored: {error}; "
            "train the run again, or search without --run"
        ) from error


def require_obedient(build: Build, low: float, high: float, steps: int) -> None:
    """Check that step sizes grow with the rate over the whole search; an optimizer that caps them flattens every curve.

    Args:
        build: builds an optimizer for some variables.
        low: the lowest rate.
        high: the highest rate.
        steps: the number of the last step: some optimizers, like Keras's Adafactor, lower the cap with the step.

    Raises:
        SettingsError: the step sizes do not grow with the rate.
    """
    (name, small), (_, large) = (_step_size(build, rate, steps) for rate in (low, high))
    asked, found = high / low, large / small if small else 0.0
    if abs(found / asked - 1) > _TOLERANCE:
        raise SettingsError(
            f"optimizer {name}: at step {steps} a rate {asked:.3g} times as high makes a step "
            f"{found:.3g} times as large; the optimizer overrides the learning rate, so none can be found: choose "
            "another optimizer"
        )


def _step_size(build: Build, rate: float, steps: int) -> tuple[str, float]:
    """Return an optimizer's class and the size of its last step for a variable at zero, where float32 is most exact."""
    variable = keras.Variable(np.zeros((2, 2), np.float32), name="kernel")
    optimizer: Any = build([variable])
    optimizer.iterations.assign(steps - 1)
    optimizer.learning_rate = rate
    optimizer.apply([np.full((2, 2), 0.1, np.float32)], [variable])
    return type(optimizer).__name__, float(np.abs(np.asarray(variable)).max())


def _losses(trainer: Trainer, first: int, rates: Sequence[float], reporter: Reporter) -> list[float]:
    """Return the loss of each step from step ``first`` on, until the loss explodes."""
    [phase] = trainer.plan.phases
    total, batches = len(rates), trainer.batches(phase)
    losses: list[float] = []
    with batches.explained():
        parts = trainer.strategy.distribute_datasets_from_function(
            lambda context: batches.dataset(first, first + total, context=context)
        )
        steps = trainer.training_steps(parts, phase, lambda step: rates[step - first])
        while len(losses) < total:
            part = steps.advance(min(_STEPS_AT_ONCE, total - len(losses)))
            losses += part.series["loss"].tolist()
            loss = {"loss": losses[-1]} if math.isfinite(losses[-1]) else {}
            reporter.progress(len(losses), total, "steps", {**loss, "learning_rate": rates[len(losses) - 1]})
            end = explodes_at(losses)
            if end is not None:
                reporter.log(f"the loss exploded at a rate of {rates[end]:.3g}, after {plural(end, 'step')}")
                losses = losses[:end]
                break
    trainer.training_reader.require_unchanged()
    return losses


def _finish(
    spec: LearningRateSpec, store: Store, rates: list[float], losses: list[float], found: Suggestion, seconds: float
) -> LearningRateResult:
    names = [f"{spec.folder}/{name}" for name in (DOCUMENT, CHART)]
    document = {
        "spec": spec.model_dump(mode="json"),
        "suggestion": found.model_dump(mode="json"),
        "rates": rates,
        "losses": losses,
    }
    store.publish_json(names[0], document, replace=True)
    store.publish_bytes(names[1], rate_chart(rates, losses, found, title=_title(spec)), replace=True)
    result = LearningRateResult(
        seconds=seconds,
        folder=spec.folder,
        chart=names[1],
        learning_rate=found.learning_rate,
        recipe_rate=spec.recipe.schedule.learning_rate,
        floor=found.floor,
        blow_up=found.blow_up,
        steps=len(losses),
        reasons=found.reasons,
    )
    complete(store, spec.folder, spec, result, names)
    return result


def _title(spec: LearningRateSpec) -> str:
    recipe: Recipe = spec.recipe
    begins = (
        f"from step {spec.checkpoint_step} of {spec.run}"
        if spec.run
        else f"further from {recipe.further}"
        if recipe.further
        else f"from {recipe.init}"
        if recipe.init
        else "from fresh weights"
    )
    return f"{recipe.name}, {recipe.optimizer.kind}, batches of {recipe.batch_size}, {begins}"
