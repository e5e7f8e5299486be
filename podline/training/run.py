"""Builds what is trained (model, optimizer, first weights, training step), and the run around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import keras
import tensorflow as tf

from podline.data.reader import SplitReader, open_split
from podline.documents.initial_weights import InitialWeights
from podline.documents.manifest import Manifest
from podline.documents.metrics_log import (
    EventKind,
    EventLog,
    MetricsLog,
)
from podline.input.pipeline import TrainingInput
from podline.kinds.table import kind_of
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.stages.specs import TrainSpec
from podline.store.contract import Store
from podline.training import devices
from podline.training.agreement import Agreement
from podline.training.checkpoints import CheckpointFolder
from podline.training.first_step import permanent
from podline.training.further import Finished, finished
from podline.training.initial_weights import take_weights
from podline.training.objective import Objective
from podline.training.optimizers import build_optimizer
from podline.training.phases import PhasedSteps, let_train
from podline.training.plan import TRAINING_SPLIT, Phase, Plan, plan_training
from podline.training.state import TrainingState
from podline.training.steps import TrainingSteps

# How many images a model is looked at with, and how many pixels, as the output of all layers may be in memory
# at once.
_FEW, _FEW_PIXELS = 64, 2**19


def prepared(recipe: Recipe, strategy: str = "auto") -> tf.distribute.Strategy:
    """This process set up for a recipe: its seeds, its devices; see :func:`podline.training.devices.prepare`."""
    return devices.prepare(recipe.seed, deterministic=recipe.deterministic, strategy=strategy)


def initial_model(recipe: Recipe, manifest: Manifest, strategy: tf.distribute.Strategy) -> keras.Model:
    """The recipe's model with the weights that training begins with; ``strategy`` is from :func:`prepared`."""
    with strategy.scope():
        return kind_of(recipe).model(recipe, manifest)


def initial_state(
    recipe: Recipe, manifest: Manifest, strategy: tf.distribute.Strategy, steps_before: int = 0
) -> TrainingState:
    """The state that training begins with; ``strategy`` is from :func:`prepared`.

    Raises:
        SettingsError: the batch cannot be shared equally.
    """
    for batch_size in recipe.batch_sizes:
        devices.require_divisible(batch_size, strategy)
    with strategy.scope():
        model = kind_of(recipe).model(recipe, manifest)
        return TrainingState(model, build_optimizer(recipe.optimizer), recipe.ema_decay, steps_before)


def few(reader: SplitReader, manifest: Manifest) -> int:
    """How many images of a split are enough to see what goes on in a model."""
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
        """Sets a fresh state to what training begins with: another run's end, or the weights of a file.

        Returns:
            What was taken from a file, if there is one.

        Raises:
            SettingsError: the other run's state, or the file, does not fit.
            ArtifactError: it is damaged.
        """
        if self.base:
            self.base.restore(self.state)
        return take_weights(self.state, self.recipe.init) if self.recipe.init else None

    def begun_again(self) -> Self:
        """The same with a new state, as training begins with it."""
        state = initial_state(self.recipe, self.manifest, self.strategy, self.state.steps_before)
        again = dataclasses.replace(self, state=state)
        again.begin()
        return again

    def batches(self) -> TrainingInput:
        """The input of the training."""
        return TrainingInput(
            self.training_reader,
            self.manifest,
            self.objective.fields,
            order=self.plan.order,
            augmentation=self.recipe.image_augmentation,
            later=self.recipe.changing.augmentation,
        )

    def training_steps(
        self, parts: Iterable[Any], phase: Phase, rate: Callable[[int], float] | None = None
    ) -> TrainingSteps:
        """Build the step of a phase, in which the phase's layers train and no other.

        Args:
            parts: the batches, each replica's part of them.
            phase: of the plan.
            rate: the learning rate of a step, if it is not that of the plan's schedule.

        Raises:
            SettingsError: the model has no such layers.
        """
        let_train(self.state.model, phase.trainable_layers)
        return TrainingSteps(
            self.strategy, self.state, rate or self.plan.schedule.at, self.objective, parts, phase.batch_size
        )


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
    return Trainer(
        recipe=recipe,
        manifest=manifest,
        plan=plan_training(recipe, manifest, base.epochs if base else 0),
        objective=kind_of(recipe).objective(recipe, manifest),
        training_reader=open_split(store, dataset_folder, manifest, TRAINING_SPLIT, reporter),
        strategy=strategy,
        base=base,
        state=initial_state(recipe, manifest, strategy, base.steps if base else 0),
    )


@dataclass(frozen=True, kw_only=True)
class Run(Trainer):
    """What the parts of a run share, beside what is trained.

    Attributes:
        spec: what is trained on what.
        shared: the store that holds other runs too.
        store: where this process writes.
        test_reader: of the test split.
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
    log: MetricsLog
    events: EventLog
    reporter: Reporter
    agreement: Agreement
    asked_to_stop: Callable[[], bool]

    @property
    def checkpoints(self) -> CheckpointFolder:
        """The run's checkpoints."""
        return CheckpointFolder(self.store, self.spec.folder, self.spec.digest())

    def require_data_unchanged(self) -> None:
        """Makes sure that the data are what was verified when the run began.

        Raises:
            ArtifactError: a file was changed since.
        """
        self.training_reader.require_unchanged()
        self.test_reader.require_unchanged()

    def go_back_to(self, step: int) -> None:
        """Sets the state to that of an earlier step, but for the number of steps done."""
        self.state.go_back(self.checkpoints.arrays(self.checkpoints.describe(step)))

    def tell(self, event: EventKind, step: int, message: str) -> None:
        """Says what happened, in the log and in ``events.jsonl``."""
        self.events.write(event, step, message)
        self.reporter.log(message)

    def on_cpu(self, model: keras.Model) -> keras.Model:
        """A copy of the run's model, or of its average, as it is, which nothing else uses."""
        with tf.device("CPU:0"):
            copy = kind_of(self.recipe).model(self.recipe, self.manifest)
            copy.set_weights(model.get_weights())
        return copy

    def steps(self, batches: TrainingInput, step: int, factor: Callable[[], float] = lambda: 1.0) -> PhasedSteps:
        """The run's steps on the device, from ``step`` on; ``factor`` is what the schedule's rate is multiplied by."""

        def begin(phase: Phase, parts: Iterable[Any]) -> TrainingSteps:
            return self._steps_of(phase, parts, factor)

        def parts(phase: Phase, first: int) -> Iterable[Any]:
            return self.strategy.distribute_datasets_from_function(
                lambda context: batches.dataset(first, phase.end, context=context)
            )

        for phase in self.plan.phases:  # what is wrong with a later one is told now
            let_train(self.state.model, phase.trainable_layers)
        return PhasedSteps(self.plan, step, begin, parts, self.reporter.pace)

    def _steps_of(self, phase: Phase, parts: Iterable[Any], factor: Callable[[], float]) -> TrainingSteps:
        strategy = self.strategy
        advice = devices.batch_advice(
            phase.batch_size, strategy.num_replicas_in_sync, tpu=devices.describe(strategy).endswith("tpu")
        )
        if advice:
            self.reporter.warn(advice)
        self.reporter.log("turning the training step into a graph")
        with permanent(self.spec):
            steps = self.training_steps(parts, phase, lambda step: self.plan.schedule.at(step) * factor())
        self.reporter.log(f"that took {steps.tracing_seconds:.1f} s; the first step comes now")
        return steps
