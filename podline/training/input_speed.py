"""Measures each stage of a recipe's input, and the model with it, in a child process or a notebook.

Every stage is measured separately, on the same batches of the real data set, through the functions that training calls:

========= ===========================================================================================================
disk      the extra time of reading when the files' pages have been dropped from memory
read      :meth:`~podline.input.pipeline.TrainingInput.read`: records gathered from the mapped files into one array
augment   :meth:`~podline.input.pipeline.TrainingInput.augmented`: random augmentation of the records
batch     the dataset around arrays in memory: makes tensors of static shape, and prefetches them
hand-over copies tensors in memory to the devices
========= ===========================================================================================================

*read*, *augment* and *batch* share the pipeline's parallel calls, so look at the slowest of the three first.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.documents.manifest import read_manifest, stored_name
from podline.input.pipeline import Arrays, TrainingInput
from podline.progress import Reporter
from podline.stages.completed import manifest_sha256
from podline.stages.tools import InputSpeed, InputSpeedSpec, StageSpeed
from podline.store.contract import explained
from podline.store.opening import open_store
from podline.training import devices
from podline.training.plan import TRAINING_SPLIT, Plan
from podline.training.run import Trainer, build_trainer

_CONTAINERS_LIMIT = Path("/sys/fs/cgroup/memory.max")
Raw = tuple[int, npt.NDArray[np.int64], Arrays]
Take = Callable[[int], Arrays]

# A model that waits for less than this share of its time is not limited by its input.
_HARDLY = 0.05
_MOST_BATCHES = 64
_LEAST_BATCHES = 2
_ENDLESS = 2**40
# More batches than a pipeline holds: those prepared before the clock starts do not count.
_UNDER_WAY = 8


@dataclass(frozen=True)
class Stages:
    """The stages of an input pipeline as functions, so that each can be measured or replaced alone.

    Attributes:
        read: returns the epoch, ids and records of a batch, by its number.
        augment: augments the records of a batch.
        batch: makes a dataset of tensors from a function that returns arrays by number.
        hand_over: copies the batches of such a dataset to the devices.
    """

    read: Callable[[int], Raw]
    augment: Callable[[Raw], Arrays]
    batch: Callable[[Take], tf.data.Dataset]
    hand_over: Callable[[tf.data.Dataset], Iterable[Any]]

    def made(self, number: int) -> Arrays:
        """Build a batch as training receives it."""
        return self.augment(self.read(number))


def stages_of(source: TrainingInput, strategy: tf.distribute.Strategy) -> Stages:
    """Return the stages of a recipe's input."""

    def handed_over(dataset: tf.data.Dataset) -> Iterator[Any]:
        to_devices = tf.function(
            lambda batch: strategy.run(lambda mine: tf.nest.map_structure(tf.identity, mine), args=(batch,)),
            autograph=False,
        )
        for batch in strategy.experimental_distribute_dataset(dataset):
            there = to_devices(batch)
            # Copies to a device are asynchronous; reading a value back waits for them.
            strategy.experimental_local_results(tf.nest.flatten(there)[-1])[-1].numpy()
            yield there

    return Stages(
        read=source.read,
        augment=lambda raw: source.augmented(*raw),
        batch=lambda take: source.dataset(0, _ENDLESS, part=lambda number, _replica, _replicas: take(number)),
        hand_over=handed_over,
    )


def run(spec: InputSpeedSpec, reporter: Reporter) -> InputSpeed:
    """Measure the input of a recipe, and the model with it.

    Raises:
        StoreError: the data set does not exist or cannot be read.
        SettingsError: the recipe does not fit the data set.
        ArtifactError: the data set does not match its manifest.
    """
    store = open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder)
    names = [stored_name(spec.dataset_folder, shard.file) for shard in manifest.split(TRAINING_SPLIT).every_shard]
    # The input of one device: the first GPU, or the CPU.
    strategy = tf.distribute.get_strategy()
    trainer = build_trainer(store, spec.dataset_folder, spec.recipe, manifest, strategy, reporter)
    trainer.begin()
    source = trainer.batches(trainer.plan.phases[0])
    with source.explained():
        return _measured(spec, reporter, trainer, store.locals(names), stages_of(source, strategy))


def _measured(
    spec: InputSpeedSpec, reporter: Reporter, trainer: Trainer, files: Sequence[Path], stages: Stages
) -> InputSpeed:
    started, size = time.monotonic(), spec.recipe.batch_size
    say = _Progress(reporter)
    say("reading")
    disk, read, raws = _reading(stages, files, trainer.plan, spec.seconds)
    say("augmenting")
    augment = _timed(lambda: (stages.augment(raw) for raw in itertools.cycle(raws)), spec.seconds)
    held = stages.augment(raws[0])
    say("making tensors")
    batch = _timed(lambda: stages.batch(lambda _number: held), spec.seconds)
    say("handing over")
    tensors = tf.data.Dataset.from_tensors({name: tf.constant(held[name]) for name in held}).repeat()
    hand_over = _timed(lambda: stages.hand_over(tensors), spec.seconds)
    say("the whole pipeline")
    together = _timed(lambda: stages.batch(lambda number: stages.made(number % len(raws))), spec.seconds)
    if hand_over > together:
        # A copy is rarely slower than all that comes before it: another program may have used the cores meanwhile.
        hand_over = min(hand_over, _timed(lambda: stages.hand_over(tensors), spec.seconds))
    say("the model")
    step, beside, waiting = _Beside(trainer, stages, held, len(raws)).measure(2 * spec.seconds)
    say("done")
    took = {"read": read, "augment": augment, "batch": batch, "hand-over": hand_over}
    first = took | {"disk": disk}
    data_bytes = trainer.training_reader.info.every_shard.bytes
    return InputSpeed(
        seconds=time.monotonic() - started,
        recipe=spec.recipe.name,
        dataset=spec.dataset_folder,
        batch_size=size,
        devices=devices.describe(tf.distribute.get_strategy()),
        stages=tuple(_speed(name, seconds, size) for name, seconds in took.items()),
        disk=_speed("disk", disk, size),
        bottleneck=slowest(took if _fits_in_memory(data_bytes) else first),
        first_pass_bottleneck=slowest(first),
        together=size / together,
        first_pass=size / (together + disk),
        model=size / step,
        training=size / beside,
        waiting=waiting,
        feeds=waiting < _HARDLY,
    )


_ABOUT = {
    "disk": "the first pass only: pages that are not in memory",
    "read": "records gathered from the mapped files into one array",
    "augment": "random augmentation of each image",
    "batch": "the array becomes a tensor and is prefetched",
    "hand-over": "the tensor is copied to the device",
}


def slowest(seconds: Mapping[str, float]) -> str:
    """Return the name of the slowest stage."""
    return max(seconds, key=lambda name: seconds[name])


def _speed(name: str, seconds: float, batch_size: int) -> StageSpeed:
    return StageSpeed(
        name=name, about=_ABOUT[name], milliseconds=1000 * seconds, examples_per_second=batch_size / seconds
    )


class _Progress:
    """Reports the progress of a measurement."""

    _parts = 6

    def __init__(self, reporter: Reporter) -> None:
        self._reporter, self._done = reporter, 0

    def __call__(self, part: str) -> None:
        self._reporter.progress(self._done, self._parts, f"parts: {part}")
        self._done += 1


def _reading(stages: Stages, files: Sequence[Path], plan: Plan, seconds: float) -> tuple[float, float, Sequence[Raw]]:
    """Return the seconds that the disk adds to a batch, the seconds to read a cached batch, and some batches."""
    plan.order.batch(0)  # Only the first call makes the epoch's permutation.
    for file in files:
        _drop_pages(file)
    raws: list[Raw] = []
    most = max(_LEAST_BATCHES, min(_MOST_BATCHES, plan.order.steps_per_epoch))
    started = time.perf_counter()
    while len(raws) < _LEAST_BATCHES or (len(raws) < most and time.perf_counter() - started < seconds):
        raws.append(stages.read(len(raws)))
    cold = (time.perf_counter() - started) / len(raws)
    warm = _timed(lambda: (stages.read(number) for number in itertools.cycle(range(len(raws)))), seconds)
    return max(cold - warm, _TICK), warm, raws


# The resolution of the clock: an empty stage counts as this long, so that rates stay finite.
_TICK = 1e-7


def _timed(batches: Callable[[], Iterable[object]], seconds: float) -> float:
    """Return the mean seconds per batch over a stretch of time; the first batches run before the clock starts."""
    iterator = iter(batches())
    for _ in range(_LEAST_BATCHES):
        next(iterator)
    count, started = 0, time.perf_counter()
    while count < _LEAST_BATCHES or time.perf_counter() - started < seconds:
        next(iterator)
        count += 1
    return max((time.perf_counter() - started) / count, _TICK)


class _Beside:
    """Runs the model with one graph: first on a constant batch, then on the batches of the input."""

    def __init__(self, trainer: Trainer, stages: Stages, held: Arrays, batches: int) -> None:
        self._stages, self._held, self._batches = stages, held, batches
        self._with_input = False
        self._steps = trainer.training_steps(stages.batch(self._take), trainer.plan.phases[0])

    def _take(self, number: int) -> Arrays:
        return self._stages.made(number % self._batches) if self._with_input else self._held

    def measure(self, seconds: float) -> tuple[float, float, float]:
        """Return seconds per step from memory, seconds per step with input, and the share spent waiting for input."""
        self._steps.advance(_LEAST_BATCHES)
        took, waited = self._stretch(seconds)
        self._with_input = True
        self._steps.advance(_UNDER_WAY)
        beside, waiting = self._stretch(seconds)
        return max(took - waited, _TICK), beside, waiting / beside

    def _stretch(self, seconds: float) -> tuple[float, float]:
        """Return the seconds per step, and how many of them are spent waiting for input."""
        steps, took, waited = 0, 0.0, 0.0
        while steps < _LEAST_BATCHES or took < seconds:
            part = self._steps.advance(_LEAST_BATCHES)
            steps, took, waited = steps + part.steps, took + part.seconds, waited + part.waiting
        return took / steps, waited / steps


def _fits_in_memory(size: int) -> bool:
    """Return whether ``size`` bytes fit into half of the memory that the machine or the container has."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        memory = min(physical, int(_CONTAINERS_LIMIT.read_text()))
    except (OSError, ValueError):  # the file is missing or says "max"
        memory = physical
    return size <= memory // 2


def _drop_pages(path: Path) -> None:
    """Drop a file's pages from memory; pages stay without posix_fadvise(2) or while a process maps them."""
    with explained("read", path), path.open("rb") as stream:
        os.fdatasync(stream.fileno())  # unwritten pages cannot be dropped
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
