"""Measures the speed of a recipe's input and of its training step, in a child process or a notebook."""

# pyright: standard
from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import tensorflow as tf

from podline.base.progress import Reporter
from podline.documents.manifest import read_manifest
from podline.stages.completed import manifest_sha256
from podline.stages.tools import InputSpeed, InputSpeedSpec, StageSpeed
from podline.store.opening import open_store
from podline.training import devices
from podline.training.run import Trainer, build_trainer

_BATCHES = 64  # read repeatedly, so that after the first pass all pages are in memory
_ENDLESS = 2**40
# More batches than the pipeline prepares ahead; they run before the clock starts.
_UNDER_WAY = 8
_AT_ONCE = 2
_ABOUT = {
    "read": "records gathered from the mapped files into one array",
    "augment": "random augmentation of each image",
    "step": "the training step on {}, without waiting for input",
}


def run(spec: InputSpeedSpec, reporter: Reporter) -> InputSpeed:
    """Measure the speed of a recipe's input and of its training step.

    Raises:
        StoreError: the data set does not exist or cannot be read.
        SettingsError: the recipe does not fit the data set.
        ArtifactError: the data set does not match its manifest.
    """
    started, store = time.monotonic(), open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder)
    # The input of one device: the first GPU, or the CPU.
    strategy = tf.distribute.get_strategy()
    trainer = build_trainer(store, spec.dataset_folder, spec.recipe, manifest, strategy, reporter)
    trainer.load_start()
    phase = trainer.plan.phases[0]
    source, size = trainer.batches(phase), spec.recipe.batch_size
    count = min(_BATCHES, trainer.plan.order.steps_per_epoch)
    with source.explained():
        reporter.progress(0, 3, "parts: reading")
        raws = [source.read(number) for number in range(count)]
        took = {"read": _timed((source.read(number) for number in itertools.cycle(range(count))), spec.seconds)}
        reporter.progress(1, 3, "parts: augmenting")
        took["augment"] = _timed((source.augmented(*raw) for raw in itertools.cycle(raws)), spec.seconds)
        reporter.progress(2, 3, "parts: the training step")
        step, waiting = _stepping(trainer, 4 * spec.seconds)
    took["step"] = step - waiting
    where = devices.describe(strategy)
    return InputSpeed(
        seconds=time.monotonic() - started,
        recipe=spec.recipe.name,
        dataset=spec.dataset_folder,
        batch_size=size,
        devices=where,
        stages=tuple(
            StageSpeed(
                name=name,
                about=_ABOUT[name].format(where),
                milliseconds=1000 * seconds,
                examples_per_second=size / seconds,
            )
            for name, seconds in took.items()
        ),
        training=size / step,
        waiting=waiting / step,
    )


def _timed(batches: Iterator[object], seconds: float) -> float:
    """Return the mean seconds per batch, measured for ``seconds``; the first batch comes before the clock starts."""
    next(batches)
    count, started = 0, time.perf_counter()
    while not count or time.perf_counter() - started < seconds:
        next(batches)
        count += 1
    return (time.perf_counter() - started) / count


def _stepping(trainer: Trainer, seconds: float) -> tuple[float, float]:
    """Return the mean seconds of a training step, and how many of these seconds it waits for input."""
    phase = trainer.plan.phases[0]
    batches = trainer.batches(phase).dataset(0, _ENDLESS)
    steps = trainer.training_steps(batches, phase)
    steps.advance(_UNDER_WAY)
    count, took, waited = 0, 0.0, 0.0
    while took < seconds:
        part = steps.advance(_AT_ONCE)
        count, took, waited = count + part.steps, took + part.seconds, waited + part.waiting
    return took / count, min(waited / count, 0.999 * took / count)
