"""Training steps and the first step in child processes, with Podline's loop and with ``keras.Model.fit``.

Both sides have the same network, batch, input and optimizer settings; ``fit`` uses Keras's optimizer. Another
comparison runs Podline's loop with two layouts of the network's tensors.
"""

from __future__ import annotations

import time
from typing import Any

import keras
import tensorflow as tf

from benchmarks.timing import in_turns, seconds_of
from podline.contract.kind import kind_of
from podline.data.order import TrainingOrder
from podline.data.reader import open_split
from podline.documents.manifest import TRAINING, Manifest, read_manifest
from podline.input.pipeline import TrainingInput
from podline.models.variables import is_kernel
from podline.recipes import registry
from podline.recipes.settings import AugmentationSettings, Recipe, ScheduleSettings
from podline.store.opening import open_store
from podline.training.optimizers import of_keras
from podline.training.run import configure_process, initial_model, initial_state
from podline.training.steps import TrainingSteps

_LEARNING_RATE = 0.05
_MANY_STEPS = 1_000_000


def train_step(root: str, folder: str, batch_size: int, steps: int, repetitions: int) -> dict[str, list[float]]:
    """Return ``ours`` and ``other`` → the seconds of ``steps`` training steps, for each repetition.

    A first call of each side is not counted.

    The epochs of one call of ``fit`` are the measurements of the other side, and Podline's steps run between these
    epochs. So the work that ``fit`` does once per call is not counted.

    Args:
        root: root of the store.
        folder: the data set's folder in the store.
        batch_size: examples in a step.
        steps: steps in a measurement.
        repetitions: measurements of each side.
    """
    recipe, manifest = _recipe(batch_size), read_manifest(open_store(root), folder)
    podline = _our_steps(recipe, manifest, root, folder)
    podline.advance(steps)
    ours, begins, ends = list[float](), list[float](), list[float]()

    def begin(*_epoch: Any, **_logs: Any) -> None:
        ours.append(seconds_of(lambda: podline.advance(steps)))
        begins.append(time.perf_counter())

    turns = keras.callbacks.LambdaCallback(begin, lambda *_epoch, **_logs: ends.append(time.perf_counter()))
    _fit(recipe, manifest, root, folder, steps, epochs=repetitions + 1, callback=turns)
    other = [end - start for start, end in zip(begins, ends, strict=True)]
    return {"ours": ours[1:], "other": other[1:]}  # fit compiles in the first epoch


def layout_steps(root: str, folder: str, batch_size: int, steps: int, repetitions: int) -> dict[str, list[float]]:
    """Return ``ours`` and ``other`` → the seconds of ``steps`` training steps on a GPU, for each repetition.

    ``ours`` has ``model.data_format=channels_first``, and ``other`` has ``channels_last``. See :func:`train_step`.
    """
    recipe, manifest = _recipe(batch_size), read_manifest(open_store(root), folder)
    models = [recipe.model.changed(data_format=layout) for layout in ("channels_first", "channels_last")]
    ours, other = (_our_steps(recipe.changed(model=model), manifest, root, folder, "gpu") for model in models)
    for side in (ours, other):
        side.advance(steps)
    timed = {
        "ours": lambda: seconds_of(lambda: ours.advance(steps)),
        "other": lambda: seconds_of(lambda: other.advance(steps)),
    }
    return in_turns(timed, repetitions)


def gpus() -> int:
    """Return the number of GPUs that TensorFlow can use."""
    return len(tf.config.list_physical_devices("GPU"))


def first_step_ours(root: str, folder: str, batch_size: int) -> float:
    """Return the seconds until the first step's loss with Podline's loop; libraries are already imported."""
    started = time.perf_counter()
    recipe, manifest = _recipe(batch_size), read_manifest(open_store(root), folder)
    _our_steps(recipe, manifest, root, folder).advance(1)
    return time.perf_counter() - started


def first_step_fit(root: str, folder: str, batch_size: int) -> float:
    """Return the seconds until the first step's loss with ``keras.Model.fit``; libraries are already imported."""
    started, ends = time.perf_counter(), list[float]()
    recipe, manifest = _recipe(batch_size), read_manifest(open_store(root), folder)
    ended = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_batch, **_logs: ends.append(time.perf_counter()))
    _fit(recipe, manifest, root, folder, steps=1, epochs=1, callback=ended)
    return ends[0] - started


def _recipe(batch_size: int) -> Recipe:
    """Return the recipe ``cifar10`` without the features that only Podline has."""
    recipe = registry.get("cifar10")
    return recipe.changed(
        batch_size=batch_size,
        augmentation=AugmentationSettings(),
        ema_decay=0.0,
        task={**recipe.task.model_dump(), "label_smoothing": 0.0},
        schedule=ScheduleSettings(kind="constant", learning_rate=_LEARNING_RATE),
    )


def _input(recipe: Recipe, manifest: Manifest, root: str, folder: str) -> tf.data.Dataset:
    reader = open_split(open_store(root), folder, manifest, TRAINING)
    order = TrainingOrder(len(reader), recipe.batch_size, recipe.seed)
    fields = kind_of(recipe).objective(recipe, manifest).fields
    return TrainingInput(reader, manifest, fields, order, recipe.image_augmentation).dataset(0, _MANY_STEPS)


def _our_steps(recipe: Recipe, manifest: Manifest, root: str, folder: str, strategy: str = "cpu") -> TrainingSteps:
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
