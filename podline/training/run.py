"""Builds the objects of a training (model, optimizer, initial weights, training step) and the run that owns them."""

# pyright: standard
from __future__ import annotations

import dataclasses
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from podline.base.arrays import Array, Arrays
from podline.base.errors import SettingsError
from podline.base.progress import Reporter
from podline.base.stopwatch import measured
from podline.contract.kind import kind_of
from podline.contract.objective import Objective
from podline.data.reader import SplitReader, open_split
from podline.data.records import IMAGE
from podline.documents.initial_weights import InitialWeights
from podline.documents.log_writers import EventLog, MetricsLog
from podline.documents.manifest import TRAINING, Manifest
from podline.documents.metrics_log import EventKind
from podline.input.pipeline import TrainingInput
from podline.models.counts import forward_multiply_adds
from podline.models.variables import copy_weights
from podline.recipes.settings import Recipe
from podline.recipes.validation import probed
from podline.stages.specs import TrainSpec
from podline.store.contract import Store
from podline.training import devices
from podline.training.checkpoints import KEPT, CheckpointFolder
from podline.training.frozen_features import FrozenFeatures
from podline.training.further import Finished, finished
from podline.training.initial_weights import stored_layers, take_weights
from podline.training.loop import StepsDone
from podline.training.plan import Phase, Plan, plan_batches
from podline.training.state import STEPS, TrainingState
from podline.training.steps import TrainingSteps, permanent
from podline.training.workers import Agreement

# The pace is the median of this number of calls: a single slow call does not change the pace; a lasting change does
# within a minute.
_PARTS = 31


def configure_process(recipe: Recipe, strategy: str = "auto") -> tf.distribute.Strategy:
    """Configure this process for a recipe: seeds and devices; see :func:`podline.training.devices.prepare`."""
    return devices.prepare(recipe.seed, deterministic=recipe.deterministic, strategy=strategy)


def initial_model(recipe: Recipe, manifest: Manifest, strategy: tf.distribute.Strategy) -> keras.Model:
    """Return the recipe's model with its initial weights; ``strategy`` is from :func:`configure_process`."""
    with strategy.scope():
        return kind_of(recipe).model(recipe, manifest)


def initial_state(
    recipe: Recipe, manifest: Manifest, strategy: tf.distribute.Strategy, steps_before: int = 0
) -> TrainingState:
    """Return the initial state of training; ``strategy`` is from :func:`configure_process`.

    Raises:
        SettingsError: replicas times ``accumulate`` do not divide a batch size, or the model cannot be built.
    """
    for _, phase in recipe.by_phase:
        devices.require_divisible(phase.batch_size, phase.accumulate, strategy)
    with strategy.scope():
        model = kind_of(recipe).model(recipe, manifest)
        return TrainingState(model, recipe.optimizer, recipe.ema_decay, steps_before)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A recipe with its data set, model and plan; used by runs, the learning-rate finder and the input benchmark.

    Attributes:
        shared: the store, which also contains other runs.
        recipe: the recipe.
        manifest: the manifest of the data set.
        training_reader: the reader of the training split.
        plan: the training in steps.
        objective: the training objective.
        strategy: the distribution strategy.
        base: the finished run that is trained further, or None.
        state: all variables that training changes.
    """

    shared: Store
    recipe: Recipe
    manifest: Manifest
    training_reader: SplitReader
    plan: Plan
    objective: Objective
    strategy: tf.distribute.Strategy
    base: Finished | None
    state: TrainingState

    def load_start(self) -> InitialWeights | None:
        """Load another run's final state or a file's weights into a fresh state, if the recipe names a run or file.

        Returns:
            The description of the weights that were taken from a file, or None.

        Raises:
            SettingsError: the other run's state, or the file, does not fit, or the file cannot be read.
            ArtifactError: the other run's state, or the file, is damaged.
        """
        if self.base:
            self.base.restore(self.state)
        if self.recipe.init is None:
            return None
        taken = take_weights(self.state, self.recipe.init, stored_layers(self.shared, self.recipe))
        with self.strategy.scope():
            self.state.renew_optimizer()  # some optimizers keep a copy of the weights
        return taken

    def for_phase_at(self, step: int) -> Self:
        """Return a trainer with the same state and the recipe of a step's phase; after the end, of the last phase."""
        recipe = self.plan.phase(min(step, self.plan.total_steps - 1)).recipe
        plan = plan_batches(recipe, self.manifest, self.training_reader, self.plan.order.first_epoch)
        return dataclasses.replace(self, recipe=recipe, plan=plan)

    def with_fresh_state(self) -> Self:
        """Return a copy of this trainer with a new initial state."""
        state = initial_state(self.recipe, self.manifest, self.strategy, self.state.steps_before)
        again = dataclasses.replace(self, state=state)
        again.load_start()
        return again

    def restore(self, arrays: Arrays) -> None:
        """Set the state to a snapshot of any phase.

        Raises:
            ArtifactError: the snapshot does not fit this model, its optimizer or its average.
        """
        step = int(arrays.get(STEPS, 0)) - self.state.steps_before
        with self.strategy.scope():
            self.state.use_optimizer(self.plan.phase(min(max(step, 1), self.plan.total_steps) - 1).recipe.optimizer)
        self.state.restore(arrays)

    def objective_of(self, phase: Phase) -> Objective:
        """Return the training objective of a phase."""
        return kind_of(phase.recipe).objective(phase.recipe, self.manifest)

    def batches(self, phase: Phase) -> TrainingInput:
        """Return the training input of a phase."""
        return TrainingInput(
            self.training_reader,
            self.manifest,
            self.objective.fields,
            order=self.plan.order,
            augmentation=phase.recipe.image_augmentation,
        )

    def multiply_adds(self, phase: Phase) -> int:
        """Return the multiply-adds, as far as known, of a forward pass for one training image of a phase."""
        return forward_multiply_adds(_for_images(self.state.model, self.batches(phase).image_shape))

    def network(self, phase: Phase) -> keras.Model:
        """Return the model for the images of a phase; only the phase's layers are trainable.

        Raises:
            SettingsError: ``trainable_layers`` names a layer that the model does not have, or leaves no variable to
                train; or a layer needs images of the model's own shape.
        """
        self.state.let_train(phase.recipe.trainable_layers)
        return _for_images(self.state.model, self.batches(phase).image_shape)

    def training_steps(
        self,
        parts: Iterable[Any],
        phase: Phase,
        rate: Callable[[int], float] | None = None,
        features: FrozenFeatures | None = None,
    ) -> TrainingSteps:
        """Build the training step of a phase from the phase's recipe.

        Args:
            parts: each replica's part of each batch.
            phase: one of the phases of the plan.
            rate: returns the learning rate of a step; by default the phase's schedule.
            features: the outputs of frozen layers; then batches have row numbers of their tables instead of images.

        Raises:
            SettingsError: see :meth:`network` and :class:`podline.training.steps.TrainingSteps`.
        """
        recipe, network = phase.recipe, self.network(phase)
        with self.strategy.scope():
            self.state.use_optimizer(recipe.optimizer)
        objective = self.objective_of(phase)
        rate = rate or phase.schedule.at
        return TrainingSteps(
            self.strategy,
            self.state,
            rate,
            objective,
            parts,
            recipe.batch_size,
            features or network,
            jit=recipe.jit,
            accumulate=recipe.accumulate,
        )


def build_trainer(
    store: Store,
    dataset_folder: str,
    recipe: Recipe,
    manifest: Manifest,
    strategy: tf.distribute.Strategy,
    reporter: Reporter | None = None,
) -> Trainer:
    """Build the trainer of a recipe, with a fresh model; :meth:`Trainer.load_start` loads initial weights.

    Raises:
        StoreError: the data set does not exist or cannot be read.
        SettingsError: the recipe does not fit the data set or the devices, or the run to train further is not finished.
        ArtifactError: the data set, or the run to be trained further, is damaged.
    """
    base = finished(store, recipe.further) if recipe.further else None
    reader = open_split(store, dataset_folder, manifest, TRAINING, reporter)
    return Trainer(
        shared=store,
        recipe=recipe,
        manifest=manifest,
        plan=plan_batches(recipe, manifest, reader, base.epochs if base else 0),
        objective=kind_of(recipe).objective(recipe, manifest),
        training_reader=reader,
        strategy=strategy,
        base=base,
        state=initial_state(recipe, manifest, strategy, base.steps if base else 0),
    )


@dataclass(frozen=True, kw_only=True)
class Run(Trainer):
    """A trainer with the stores, logs and processes of one run.

    Attributes:
        spec: the spec of the training.
        store: the store that this process writes to.
        test_reader: the reader of the test split.
        evaluated_reader: the reader of the split that is evaluated during training.
        log: ``metrics.jsonl``.
        events: ``events.jsonl``.
        reporter: reports progress.
        agreement: makes decisions common to all workers.
        asked_to_stop: returns whether SIGTERM arrived at any worker; all workers must call this function.
    """

    spec: TrainSpec
    store: Store
    test_reader: SplitReader
    evaluated_reader: SplitReader
    log: MetricsLog
    events: EventLog
    reporter: Reporter
    agreement: Agreement
    asked_to_stop: Callable[[], bool]

    @property
    def checkpoints(self) -> CheckpointFolder:
        """The run's checkpoints."""
        keep = self.recipe.keep
        lasting = frozenset(self.plan.evaluations) if keep == "all" else ()
        kept = max(KEPT, keep) if isinstance(keep, int) else KEPT
        return CheckpointFolder(self.store, self.spec.folder, self.spec.digest(), kept, lasting)

    def some_images(self) -> Array:
        """Return a few images of the test split, uint8 (n, height, width, channels)."""
        return self.test_reader.gather(np.arange(probed(self.manifest)), (IMAGE,))[IMAGE]

    def require_data_unchanged(self) -> None:
        """Check that the data have not changed since the run began.

        Raises:
            ArtifactError: a file has changed.
        """
        for reader in (self.training_reader, self.test_reader, self.evaluated_reader):
            reader.require_unchanged()

    def go_back_to(self, step: int) -> None:
        """Restore the state of an earlier step, but keep the number of steps done: the order of batches goes on."""
        arrays = self.checkpoints.arrays(self.checkpoints.describe(step))
        self.state.restore({**arrays, STEPS: np.array(self.state.total_steps_done)})

    def tell(self, event: EventKind, step: int, message: str) -> None:
        """Write an event to the log and to ``events.jsonl``."""
        self.events.write(event, step, message)
        self.reporter.log(message)

    def features(self, phase: Phase) -> FrozenFeatures | None:
        """Return the features of a phase's frozen layers, computed once each; None if impossible, or not on one CPU."""
        alone = self.strategy.num_replicas_in_sync == 1 and devices.describe(self.strategy).endswith("cpu")
        return FrozenFeatures.of(self.network(phase), self.batches(phase)) if alone else None

    def on_cpu(self, model: keras.Model, phase: Phase | None = None) -> keras.Model:
        """Return a separate copy of the run's model, or of its average, on the CPU.

        Args:
            model: the model to copy.
            phase: the phase whose image shape the copy takes; by default the shape of the data set.
        """
        with tf.device("CPU:0"):
            copy = kind_of(self.recipe).model(self.recipe, self.manifest)
            if phase:
                shape = self.batches(phase).image_shape
                copy = keras.models.clone_model(copy, keras.Input(shape, dtype=copy.inputs[0].dtype))
            copy_weights(model, copy)
        return copy

    def steps(self, step: int, factor: Callable[[], float] = lambda: 1.0) -> PhasedSteps:
        """Return the run's training steps from ``step`` on; ``factor`` returns a multiplier of the schedule's rate.

        Raises:
            SettingsError: the model does not fit one of the phases; see :meth:`training_steps`.
        """
        for phase in self.plan.phases:  # an invalid later phase fails now
            self.network(phase)
        return PhasedSteps(self, step, factor)


class PhasedSteps:
    """The training steps of a run. Each phase's step function is built when the phase begins.

    The phase depends only on the step, so a resumed run starts in the right phase.
    """

    def __init__(self, run: Run, step: int, factor: Callable[[], float]) -> None:
        """Build the training-step function of the phase in which step number ``step`` lies."""
        self._run, self._factor, self._traces_before = run, factor, 0
        self._enter(step)

    def advance(self, count: int) -> StepsDone:
        """Take ``count`` steps of one phase; report the expected duration to the supervising process.

        The expected duration excludes the work between steps (evaluation, checkpoints, tracing).
        """
        if self._step == self._phase.end:
            self._traces_before = self.traces
            self._enter(self._step)
        started = time.perf_counter()
        if self._features:
            self._features.prepare(self._step, self._step + count)
        before = time.perf_counter() - started
        self._run.reporter.pace(count * statistics.median(self._seconds) if self._seconds else None)
        with self._batches.explained():
            done = self._steps.advance(count)
        self._run.reporter.pace(None)
        done = dataclasses.replace(done, seconds=done.seconds + before)
        self._seconds.append(done.seconds / count)
        self._step += count
        return done

    def computing(self, step: int) -> int:
        """Return the number of steps from ``step`` to the end of its phase that compute features of frozen layers."""
        if self._features is None:
            return 0
        views, order = self._features.batches.augmentation.views, self._run.plan.order
        return min(self._phase.end - step, views * (order.count // order.epochs.place(step).batch_size))

    def rewind(self, step: int) -> None:
        """Continue from another step of the phase with the same traced graph."""
        self._step = step
        self._steps.rewind(self._parts())

    @property
    def tracing_seconds(self) -> float:
        """Seconds spent tracing the phase's step function."""
        return self._steps.tracing_seconds

    @property
    def traces(self) -> int:
        """The number of tracings of step functions, over all phases so far."""
        return self._traces_before + self._steps.traces

    @measured("tracing")
    def _enter(self, step: int) -> None:
        run = self._run
        self._step, self._phase = step, run.plan.phase(step)
        self._features = run.features(self._phase)
        self._batches = self._features.batches if self._features else run.batches(self._phase)
        self._seconds: deque[float] = deque(maxlen=_PARTS)
        recipe = self._phase.recipe
        devices.warn_of_padding("batch_size", recipe.batch_size, run.strategy, run.reporter, recipe.accumulate)
        self._renew(step)
        run.reporter.log("tracing the training step")
        schedule, factor = self._phase.schedule, self._factor
        with permanent(run.spec), self._batches.explained():
            self._steps = run.training_steps(
                self._parts(), self._phase, lambda step: schedule.at(step) * factor(), self._features
            )
        run.reporter.log(f"traced in {self._steps.tracing_seconds:.1f} s; the first step follows")

    def _renew(self, step: int) -> None:
        """Renew the optimizer if the set of trainable layers changes at this step."""
        run, layers = self._run, self._phase.recipe.trainable_layers
        if any(phase.end == step and phase.recipe.trainable_layers != layers for phase in run.plan.phases):
            with run.strategy.scope():
                run.state.renew_optimizer()

    def _parts(self) -> Iterable[Any]:
        first, end, batches = self._step, self._phase.end, self._batches
        return self._run.strategy.distribute_datasets_from_function(
            lambda context: batches.dataset(first, end, context=context)
        )


def _for_images(model: keras.Model, shape: tuple[int, ...]) -> keras.Model:
    """Return a model with the same layers for images of another shape."""
    [images] = model.inputs
    if shape == tuple(images.shape[1:]):
        return model
    try:
        return keras.models.clone_model(
            model, keras.Input(shape, dtype=images.dtype), clone_function=lambda layer: layer
        )
    except ValueError as error:
        raise SettingsError(
            f"augmentation gives images of {shape}, but the model needs {tuple(images.shape[1:])} "
            f"({next(iter(str(error).splitlines()))}); leave augmentation.image_size out, or choose another model"
        ) from error
