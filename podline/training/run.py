"""Builds what is trained (model, optimizer, first weights, training step), and the run around it."""

from __future__ import annotations

import dataclasses
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import keras
import tensorflow as tf

from podline.arrays import Arrays
from podline.data.reader import SplitReader, open_split
from podline.documents.initial_weights import InitialWeights
from podline.documents.manifest import Manifest
from podline.documents.metrics_log import (
    EventKind,
    EventLog,
    MetricsLog,
)
from podline.errors import SettingsError
from podline.input.pipeline import TrainingInput
from podline.kinds.table import kind_of
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.stages.specs import TrainSpec
from podline.stopwatch import measured
from podline.store.contract import Store
from podline.training import devices
from podline.training.checkpoints import KEPT, CheckpointFolder
from podline.training.further import Finished, finished
from podline.training.initial_weights import take_weights
from podline.training.loop import StepsDone
from podline.training.objective import Objective
from podline.training.plan import TRAINING_SPLIT, Phase, Plan, plan_batches
from podline.training.state import STEPS, TrainingState
from podline.training.steps import TrainingSteps, permanent
from podline.training.workers import Agreement

# How many images a model is looked at with, and how many pixels, as the output of all layers may be in memory
# at once.
_FEW, _FEW_PIXELS = 64, 2**19
# The pace is the median of this many calls: one slow call does not move it, and a change does within a minute.
_PARTS = 31


def prepared(recipe: Recipe, strategy: str = "auto") -> tf.distribute.Strategy:
    """Set this process up for a recipe: seeds and devices; see :func:`podline.training.devices.prepare`."""
    return devices.prepare(recipe.seed, deterministic=recipe.deterministic, strategy=strategy)


def initial_model(recipe: Recipe, manifest: Manifest, strategy: tf.distribute.Strategy) -> keras.Model:
    """Return the recipe's model with its initial weights; ``strategy`` is from :func:`prepared`."""
    with strategy.scope():
        return kind_of(recipe).model(recipe, manifest)


def initial_state(
    recipe: Recipe, manifest: Manifest, strategy: tf.distribute.Strategy, steps_before: int = 0
) -> TrainingState:
    """Return the initial state of training; ``strategy`` is from :func:`prepared`.

    Raises:
        SettingsError: the batch cannot be shared equally.
    """
    for _, phase in recipe.by_phase:
        devices.require_divisible(phase.batch_size, strategy)
    with strategy.scope():
        model = kind_of(recipe).model(recipe, manifest)
        return TrainingState(model, recipe.optimizer, recipe.ema_decay, steps_before)


def few(reader: SplitReader, manifest: Manifest) -> int:
    """Return the number of images from a split that the probe uses."""
    height, width, _ = manifest.image_shape
    return min(len(reader), _FEW, max(_FEW_PIXELS // (height * width), 2))


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A recipe on a data set, ready to train: what run, learning-rate finder and input benchmark get their step from.

    Attributes:
        recipe: what is trained, and how.
        manifest: of the data set.
        training_reader: what is trained on.
        plan: the training in steps.
        objective: what is trained for.
        strategy: what it runs under.
        base: the run that is trained further, if there is one.
        state: everything that training changes.
    """

    recipe: Recipe
    manifest: Manifest
    training_reader: SplitReader
    plan: Plan
    objective: Objective
    strategy: tf.distribute.Strategy
    base: Finished | None
    state: TrainingState

    def begin(self) -> InitialWeights | None:
        """Load into a fresh state another run's final state or a file's weights, if the recipe names one.

        Returns:
            What was taken from a file, if there is one.

        Raises:
            SettingsError: the other run's state, or the file, does not fit.
            ArtifactError: it is damaged.
        """
        if self.base:
            self.base.restore(self.state)
        return take_weights(self.state, self.recipe.init) if self.recipe.init else None

    def in_phase_of(self, step: int) -> Self:
        """Return a trainer with the same state for the recipe as it is at a step, or was in the last one."""
        recipe = self.plan.phase(min(step, self.plan.total_steps - 1)).recipe
        plan = plan_batches(recipe, self.manifest, self.training_reader, self.plan.order.first_epoch)
        return dataclasses.replace(self, recipe=recipe, plan=plan)

    def begun_again(self) -> Self:
        """Return a copy of this run with a new initial state."""
        state = initial_state(self.recipe, self.manifest, self.strategy, self.state.steps_before)
        again = dataclasses.replace(self, state=state)
        again.begin()
        return again

    def restore(self, arrays: Arrays) -> None:
        """Set the state to a snapshot of any phase.

        Raises:
            ArtifactError: it is a snapshot of another model or optimizer.
        """
        step = int(arrays.get(STEPS, 0)) - self.state.steps_before
        with self.strategy.scope():
            self.state.use_optimizer(self.plan.phase(min(max(step, 1), self.plan.total_steps) - 1).recipe.optimizer)
        self.state.restore(arrays)

    def objective_of(self, phase: Phase) -> Objective:
        """Return what is trained for in a phase."""
        return kind_of(phase.recipe).objective(phase.recipe, self.manifest)

    def batches(self, phase: Phase) -> TrainingInput:
        """Return the input of a phase."""
        return TrainingInput(
            self.training_reader,
            self.manifest,
            self.objective.fields,
            order=self.plan.order,
            augmentation=phase.recipe.image_augmentation,
        )

    def training_steps(
        self, parts: Iterable[Any], phase: Phase, rate: Callable[[int], float] | None = None
    ) -> TrainingSteps:
        """Build the step of a phase from the phase's recipe.

        Raises:
            SettingsError: the model has no such layers.
        """
        recipe = phase.recipe
        let_train(self.state.model, recipe.trainable_layers)
        with self.strategy.scope():
            self.state.use_optimizer(recipe.optimizer)
        objective = self.objective_of(phase)
        network = for_images(self.state.model, self.batches(phase).image_shape)
        rate = rate or phase.schedule.at
        return TrainingSteps(self.strategy, self.state, rate, objective, parts, recipe.batch_size, network)


def build_trainer(
    store: Store,
    dataset_folder: str,
    recipe: Recipe,
    manifest: Manifest,
    strategy: tf.distribute.Strategy,
    reporter: Reporter | None = None,
) -> Trainer:
    """Build the trainer of a recipe; its state is that of a fresh model until :meth:`Trainer.begin`.

    Raises:
        StoreError: there is no such data set, or no such run to be trained further.
        SettingsError: the recipe does not fit the data set or the devices.
        ArtifactError: the data set, or the run to be trained further, is damaged.
    """
    base = finished(store, recipe.further) if recipe.further else None
    reader = open_split(store, dataset_folder, manifest, TRAINING_SPLIT, reporter)
    return Trainer(
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
    """The objects that a run's parts share besides the trained state.

    Attributes:
        spec: what is trained on what.
        shared: the store that holds other runs too.
        store: where this process writes.
        test_reader: of the test split.
        evaluated_reader: of the split that is evaluated during training.
        log: ``metrics.jsonl``.
        events: ``events.jsonl``.
        reporter: is told of progress.
        agreement: how the processes that train together decide as one.
        asked_to_stop: whether any of them was asked to end; a question to all of them.
    """

    spec: TrainSpec
    shared: Store
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

    def require_data_unchanged(self) -> None:
        """Check that the data are those that were verified when the run began.

        Raises:
            ArtifactError: a file was changed since.
        """
        for reader in (self.training_reader, self.test_reader, self.evaluated_reader):
            reader.require_unchanged()

    def go_back_to(self, step: int) -> None:
        """Set the state to that of an earlier step, but for the number of steps done."""
        self.state.go_back(self.checkpoints.arrays(self.checkpoints.describe(step)))

    def tell(self, event: EventKind, step: int, message: str) -> None:
        """Says what happened, in the log and in ``events.jsonl``."""
        self.events.write(event, step, message)
        self.reporter.log(message)

    def on_cpu(self, model: keras.Model, phase: Phase | None = None) -> keras.Model:
        """Return a copy of the run's model, or of its average, which nothing else uses.

        Args:
            model: what is copied.
            phase: whose images the copy is for; by default it is for those of the data set.
        """
        with tf.device("CPU:0"):
            copy = kind_of(self.recipe).model(self.recipe, self.manifest)
            if phase:
                shape = self.batches(phase).image_shape
                copy = keras.models.clone_model(copy, keras.Input(shape, dtype=copy.inputs[0].dtype))
            copy.set_weights(model.get_weights())
        return copy

    def steps(self, step: int, factor: Callable[[], float] = lambda: 1.0) -> PhasedSteps:
        """Return the run's steps from ``step`` on; ``factor`` multiplies the schedule's rate.

        Raises:
            SettingsError: the model does not fit one of the phases; see :meth:`training_steps`.
        """
        for phase in self.plan.phases:  # what is wrong with a later one is an error now
            let_train(self.state.model, phase.recipe.trainable_layers)
            for_images(self.state.model, self.batches(phase).image_shape)
        return PhasedSteps(self, step, factor)


class PhasedSteps:
    """Training steps of a run. Where a phase begins, the step is built from the phase's recipe.

    Where that is depends on the step alone, so a run that goes on in the middle of a phase is in it at once.
    """

    def __init__(self, run: Run, step: int, factor: Callable[[], float]) -> None:
        """Build the step of the phase that ``step`` is in."""
        self._run, self._factor, self._traces_before = run, factor, 0
        self._enter(step)

    def advance(self, count: int) -> StepsDone:
        """Take ``count`` steps, all of one phase; the supervising process learns how long they should take.

        What comes between the steps (evaluation, checkpoints, the graph of the first step) has no pace.
        """
        if self._step == self._phase.end:
            self._traces_before = self.traces
            self._enter(self._step)
        self._run.reporter.pace(count * statistics.median(self._seconds) if self._seconds else None)
        with self._batches.explained():
            done = self._steps.advance(count)
        self._run.reporter.pace(None)
        self._seconds.append(done.seconds / count)
        self._step += count
        return done

    def rewind(self, step: int) -> None:
        """Go on from another step of the phase; the graph stays."""
        self._step = step
        self._steps.rewind(self._parts())

    @property
    def tracing_seconds(self) -> float:
        """Seconds that turning the phase's step into a graph took."""
        return self._steps.tracing_seconds

    @property
    def traces(self) -> int:
        """The number of tracings of the step, in all phases so far."""
        return self._traces_before + self._steps.traces

    @measured("tracing")
    def _enter(self, step: int) -> None:
        run = self._run
        self._step, self._phase = step, run.plan.phase(step)
        self._batches = run.batches(self._phase)
        self._seconds: deque[float] = deque(maxlen=_PARTS)
        devices.warn_of_padding("batch_size", self._phase.recipe.batch_size, run.strategy, run.reporter)
        run.reporter.log("tracing the training step")
        schedule, factor = self._phase.schedule, self._factor
        with permanent(run.spec), self._batches.explained():
            self._steps = run.training_steps(self._parts(), self._phase, lambda step: schedule.at(step) * factor())
        run.reporter.log(f"traced in {self._steps.tracing_seconds:.1f} s; the first step follows")

    def _parts(self) -> Iterable[Any]:
        first, end, batches = self._step, self._phase.end, self._batches
        return self._run.strategy.distribute_datasets_from_function(
            lambda context: batches.dataset(first, end, context=context)
        )


def let_train(model: keras.Model, beginnings: Sequence[str]) -> None:
    """Let the layers train whose names start with one of some beginnings, and no other.

    Batch norm that does not train normalises by its moving statistics and leaves them as they are.

    Raises:
        SettingsError: a beginning fits no layer with weights, or no variable would train.
    """
    weighted = [layer for layer in model.layers if layer.weights]
    for beginning in beginnings:
        if not any(layer.name.startswith(beginning) for layer in weighted):
            raise SettingsError(
                f"trainable_layers: no layer with weights starts with {beginning!r}; "
                f"there are: {', '.join(layer.name for layer in weighted)}"
            )
    for layer in model.layers:
        layer.trainable = layer.name.startswith(tuple(beginnings))
    if not model.trainable_variables:
        raise SettingsError(f"trainable_layers={list(beginnings)}: no variable would train; name a layer that has one")


def for_images(model: keras.Model, shape: tuple[int, ...]) -> keras.Model:
    """Return a model of the same layers for images of another shape.

    Raises:
        SettingsError: a layer needs images of the model's own shape.
    """
    [images] = model.inputs
    if shape == tuple(images.shape[1:]):
        return model
    try:
        return keras.models.clone_model(
            model, keras.Input(shape, dtype=images.dtype), clone_function=lambda layer: layer
        )
    except ValueError as error:
        raise SettingsError(
            f"augmentation gives images of {shape}, and the model needs {tuple(images.shape[1:])} "
            f"({next(iter(str(error).splitlines()))}); leave augmentation.image_size out, or choose another model"
        ) from error
