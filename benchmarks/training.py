"""Measured in child processes: a training step, and the first one, of our loop and of ``keras.Model.fit``.

Both sides have the same recipe: the same network from :mod:`podline.models`, batch and input, and an optimizer with the
same settings; that of ``fit`` is Keras's own, without our weight decay. A further comparison has our loop on
both sides, with two layouts of the network's tensors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from benchmarks.timing import in_turns
from podline.contract.kind import kind_of
from podline.data.order import TrainingOrder
from podline.data.reader import open_split
from podline.documents.manifest import TRAIN, Manifest, read_manifest
from podline.input.pipeline import TrainingInput
from podline.models.variables import is_kernel
from podline.recipes import registry
from podline.recipes.settings import AugmentationSettings, Recipe, ScheduleSettings
from podline.store.opening import open_store
from podline.training.optimizers import of_keras
from podline.training.run import configure_process, initial_model, initial_state
from podline.training.steps import TrainingSteps

_LEARNING_RATE = 0.05
# More than either side is ever asked for.
_MANY_STEPS = 1_000_000


def train_step(root: str, folder: str, batch_size: int, steps: int, repetitions: int) -> dict[str, list[float]]:
    """Seconds for a stretch of training steps, each side warm.

    The two sides take turns within one call of ``fit``: its epochs are the plain side's stretches, and ours come
    between them, so what ``fit`` does once a call is not counted.

    Args:
        root: the store.
        folder: the data set's folder in it.
        batch_size: examples in a step.
        steps: in a stretch.
        repetitions: stretches of each side.
    """
    recipe, manifest = _recipe(batch_size), read_manifest(open_store(root), folder)
    ours = _our_steps(recipe, manifest, root, folder)
    turns = _Turns(lambda: ours.advance(steps))
    ours.advance(steps)
    _fit(recipe, manifest, root, folder, steps, epochs=repetitions + 1, callback=turns)
    # The first epoch of fit holds its compiling.
    return {"ours": turns.ours[1:], "other": turns.other[1:]}


def layout_steps(
    root: str, folder: str, batch_size: int, steps: int, repetitions: int, layouts: tuple[str, str], strategy: str
) -> dict[str, list[float]]:
    """Seconds for a stretch of training steps with two values of ``model.data_format``, each side warm.

    Args:
        root: the store.
        folder: the data set's folder in it.
        batch_size: examples in a step.
        steps: in a stretch.
        repetitions: stretches of each side.
        layouts: the sides' ``model.data_format``.
        strategy: where both run.
    """
    recipe, manifest = _recipe(batch_size), read_manifest(open_store(root), folder)
    models = [recipe.model.changed(data_format=layout) for layout in layouts]
    ours, other = (
        _our_steps(recipe.changed(model=model), manifest, root, folder, strategy=strategy) for model in models
    )
    for side in (ours, other):
        side.advance(steps)
    return in_turns(lambda: ours.advance(steps), lambda: other.advance(steps), repetitions)._asdict()


def gpus() -> int:
    """Return how many GPUs TensorFlow can use."""
    return len(tf.config.list_physical_devices("GPU"))


def first_step_ours(root: str, folder: str, batch_size: int) -> float:
    """Seconds from an imported library to the first step's loss, with our loop; call it in a fresh process."""
    started = time.perf_counter()
    recipe, manifest = _recipe(batch_size), read_manifest(open_store(root), folder)
    _our_steps(recipe, manifest, root, folder).advance(1)
    return time.perf_counter() - started


def first_step_fit(root: str, folder: str, batch_size: int) -> float:
    """Seconds to the first loss of ``keras.Model.fit``."""
    started = time.perf_counter()
    recipe, manifest = _recipe(batch_size), read_manifest(open_store(root), folder)
    ended = _FirstBatch()
    _fit(recipe, manifest, root, folder, steps=1, epochs=1, callback=ended)
    return ended.time - started


class _Turns(keras.callbacks.Callback):
    """Times the epochs of ``fit``, and before each of them a stretch of ours."""

    def __init__(self, stretch: Callable[[], object]) -> None:
        super().__init__()
        self.ours: list[float] = []
        self.other: list[float] = []
        self._stretch, self._started = stretch, 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras's interface)
        started = time.perf_counter()
        self._stretch()
        self._started = time.perf_counter()
        self.ours.append(self._started - started)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras's interface)
        self.other.append(time.perf_counter() - self._started)


class _FirstBatch(keras.callbacks.Callback):
    """Notes when the first step's loss is known."""

    time = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras's interface)
        self.time = time.perf_counter()


def _recipe(batch_size: int, name: str = "cifar10", precision: str = "float32") -> Recipe:
    """Return a recipe of CIFAR-10 without what only one of the sides would do."""
    changes = {
        "batch_size": batch_size,
        "precision": precision,
        "augmentation": AugmentationSettings(),
        "ema_decay": 0.0,
        "task": {**registry.get(name).task.model_dump(), "label_smoothing": 0.0},
        "schedule": ScheduleSettings(kind="constant", learning_rate=_LEARNING_RATE),
    }
    return registry.get(name).changed(**changes)


def _input(recipe: Recipe, manifest: Manifest, root: str, folder: str) -> tf.data.Dataset:
    reader = open_split(open_store(root), folder, manifest, TRAIN)
    order = TrainingOrder(len(reader), recipe.batch_size, recipe.seed)
    batches = TrainingInput(
        reader,
        manifest,
        kind_of(recipe).objective(recipe, manifest).fields,
        order=order,
        augmentation=recipe.image_augmentation,
    )
    return batches.dataset(0, _MANY_STEPS)


def _our_steps(recipe: Recipe, manifest: Manifest, root: str, folder: str, *, strategy: str = "cpu") -> TrainingSteps:
    devices = configure_process(recipe, strategy)
    state = initial_state(recipe, manifest, devices)
    batches = _input(recipe, manifest, root, folder)
    objective = kind_of(recipe).objective(recipe, manifest)
    return TrainingSteps(devices, state, lambda _step: _LEARNING_RATE, objective, batches, recipe.batch_size)


def _fit(
    recipe: Recipe,
    manifest: Manifest,
    root: str,
    folder: str,
    steps: int,
    *,
    epochs: int,
    callback: keras.callbacks.Callback,
) -> None:
    model = initial_model(recipe, manifest, configure_process(recipe, "cpu"))
    optimizer = of_keras(recipe.optimizer, _LEARNING_RATE)
    optimizer.weight_decay = recipe.optimizer.weight_decay
    optimizer.exclude_from_weight_decay([each for each in model.trainable_variables if not is_kernel(each)])
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    pairs = _input(recipe, manifest, root, folder).map(lambda batch: (batch["image"], batch["label"]))
    quietly: dict[str, Any] = {"verbose": 0}  # Keras's annotation allows "auto" alone
    model.fit(pairs, steps_per_epoch=steps, epochs=epochs, callbacks=[callback], **quietly)
