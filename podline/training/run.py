"""A training run's parts, put together: model and state, steps, hooks, evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from podline.data.manifest import Manifest
from podline.data.reader import SplitReader
from podline.errors import PreemptedError
from podline.input.pipeline import EvaluationInput, TrainingInput
from podline.models.build import build_model
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.stages import TrainSpec
from podline.storage import Store
from podline.training import devices
from podline.training.annealing import Annealing
from podline.training.checkpoints import CheckpointFolder
from podline.training.hooks import Evaluate, RunClock, SaveCheckpoints, StopOnDivergence, WriteMetrics
from podline.training.loop import Hook, Part, require_keys, run_loop
from podline.training.metrics_log import (
    EvaluationLine,
    EventKind,
    EventLog,
    MetricsLine,
    MetricsLog,
    read_metrics,
)
from podline.training.objective import Classification, Objective
from podline.training.optimizers import build_optimizer
from podline.training.pace import Paced
from podline.training.plan import EVALUATION_SPLIT, TRAINING_SPLIT, VALIDATION, Plan
from podline.training.plateau import Plateau
from podline.training.state import TrainingState
from podline.training.steps import ScoringSteps, TrainingSteps, provided
from podline.training.tensorboard import EventFile

_NEWS_SECONDS = 1.0


def prepared(recipe: Recipe, strategy: str = "auto") -> tf.distribute.Strategy:
    """This process set up for a recipe: its seeds, its devices; see :func:`podline.training.devices.prepare`."""
    return devices.prepare(recipe.seed, deterministic=recipe.deterministic, strategy=strategy)


def initial_model(recipe: Recipe, manifest: Manifest, strategy: tf.distribute.Strategy) -> keras.Model:
    """The recipe's model with the weights that training begins with; ``strategy`` is from :func:`prepared`."""
    with strategy.scope():
        return _build(recipe, manifest)


def _build(recipe: Recipe, manifest: Manifest) -> keras.Model:
    split = manifest.split(TRAINING_SPLIT)
    height, width, channels = manifest.image_shape
    return build_model(
        recipe.model, (height, width, channels), len(manifest.class_names), split.mean, split.std, recipe.seed
    )


def initial_state(recipe: Recipe, manifest: Manifest, strategy: tf.distribute.Strategy) -> TrainingState:
    """The state that training begins with; ``strategy`` is from :func:`prepared`.

    Raises:
        SettingsError: the batch cannot be shared equally.
    """
    devices.require_divisible(recipe.batch_size, strategy)
    with strategy.scope():
        model = _build(recipe, manifest)
        return TrainingState(model, build_optimizer(recipe.optimizer), recipe.ema_decay)


@dataclass(frozen=True)
class Run:
    """What the parts of a run share.

    Attributes:
        spec: what is trained on what.
        store: where.
        manifest: of the data set.
        splits: its readers, by the splits' names.
        plan: the run in steps.
        objective: what is trained for.
        strategy: what it runs under.
        state: everything that training changes.
        log: ``metrics.jsonl``.
        events: ``events.jsonl``.
        reporter: is told of progress.
        asked_to_stop: whether the process was asked to end.
    """

    spec: TrainSpec
    store: Store
    manifest: Manifest
    splits: dict[str, SplitReader]
    plan: Plan
    objective: Objective
    strategy: tf.distribute.Strategy
    state: TrainingState
    log: MetricsLog
    events: EventLog
    reporter: Reporter
    asked_to_stop: Callable[[], bool]

    @property
    def recipe(self) -> Recipe:
        """What is trained, and how."""
        return self.spec.recipe

    @property
    def checkpoints(self) -> CheckpointFolder:
        """The run's checkpoints."""
        return CheckpointFolder(self.store, self.spec.folder, self.spec.digest())

    def train_from(self, step: int, clock: RunClock) -> None:
        """Takes the steps that are left, with all that happens between them.

        Raises:
            PreemptedError: the process was asked to end; what was done is saved.
            SettingsError: a hook looks for what no step tells.
        """
        lines = read_metrics(self.log.path)
        with EventFile(self.store.path(f"{self.spec.folder}/tensorboard"), lines) as board:

            def write(line: MetricsLine) -> None:
                self.log.write(line)
                board.write(line)

            plateau, annealing = self._deciders(lines, write)
            evaluate = Evaluate(Scoring(self).line, write, self.plan, (plateau.decide, annealing.decide))
            if not any(isinstance(line, EvaluationLine) and line.step == step for line in lines):
                evaluate.at(step)
            if self.asked_to_stop():
                raise PreemptedError(f"asked to end (SIGTERM) at step {step}; start it again to go on from there")
            if step == self.plan.total_steps:
                return
            self.reporter.progress(step, self.plan.total_steps, "steps")
            metrics = WriteMetrics(write, self.plan, self.recipe.summary_steps, clock, plateau.factor)
            hooks = self._hooks(clock, metrics, evaluate, annealing.accepted)
            self._loop(step, hooks, plateau.factor)

    def _deciders(
        self, lines: Sequence[MetricsLine], write: Callable[[MetricsLine], None]
    ) -> tuple[Plateau, Annealing]:
        """What decides by the evaluations, as far as it had come."""
        recipe = self.recipe
        return (
            Plateau(recipe.schedule.plateau, lines, write, self.tell),
            Annealing(recipe.annealing, recipe.seed, self.plan.total_steps, lines, write, self.tell, self._go_back_to),
        )

    def _go_back_to(self, step: int) -> None:
        """Sets the state to that of an earlier step, but for the number of steps done."""
        self.state.go_back(self.checkpoints.arrays(self.checkpoints.describe(step)))

    def tell(self, event: EventKind, step: int, message: str) -> None:
        """Says what happened, in the log and in ``events.jsonl``."""
        self.events.write(event, step, message)
        self.reporter.log(message)

    def _hooks(
        self, clock: RunClock, metrics: WriteMetrics, evaluate: Evaluate, accepted: Callable[[], int | None]
    ) -> list[Hook]:
        """What happens between the stretches, in this order; :mod:`podline.training.hooks` says why in this one."""
        recipe = self.recipe
        return [
            StopOnDivergence(self.plan.order),
            clock,
            metrics,
            evaluate,
            SaveCheckpoints(
                self.checkpoints,
                self.state.snapshot,
                self.log.mark,
                every_steps=recipe.checkpoint_steps,
                every_minutes=recipe.checkpoint_minutes,
                clock=clock,
                accepted=accepted,
            ),
        ]

    def _loop(self, step: int, hooks: list[Hook], factor: Callable[[], float]) -> None:
        require_keys(hooks, provided(self.objective))
        batches = self.batches()
        with batches.explained():
            steps = self.steps(batches, step, factor)
            run_loop(
                Paced(steps.advance, self.reporter.pace).advance,
                step,
                self.plan.total_steps,
                hooks=hooks,
                news=lambda done, part: self._news(done, part, factor()),
                asked_to_stop=self.asked_to_stop,
            )

    def batches(self) -> TrainingInput:
        """The run's input."""
        return TrainingInput(
            self.splits[TRAINING_SPLIT],
            self.manifest,
            self.objective.fields,
            order=self.plan.order,
            augmentation=self.recipe.augmentation,
        )

    def steps(self, batches: TrainingInput, step: int, factor: Callable[[], float] = lambda: 1.0) -> TrainingSteps:
        """The run's steps on the device, from ``step`` on; ``factor`` is what the schedule's rate is multiplied by."""
        strategy = self.strategy
        advice = devices.batch_advice(
            self.recipe.batch_size, strategy.num_replicas_in_sync, tpu=devices.describe(strategy).endswith("tpu")
        )
        if advice:
            self.reporter.warn(advice)
        self.reporter.log("turning the training step into a graph")
        parts = strategy.distribute_datasets_from_function(
            lambda context: batches.dataset(step, self.plan.total_steps, context=context)
        )
        steps = TrainingSteps(
            strategy, self.state, self.plan.schedule, self.objective, parts, self.recipe.batch_size, factor
        )
        self.reporter.log(f"that took {steps.tracing_seconds:.1f} s; the first step comes now")
        return steps

    def _news(self, step: int, part: Part, factor: float) -> None:
        examples = part.steps * self.recipe.batch_size
        self.reporter.progress(
            step,
            self.plan.total_steps,
            "steps",
            {
                "loss": float(np.mean(part.series["loss"])),
                "accuracy": float(np.sum(part.series["correct"])) / examples,
                "examples/s": examples / part.seconds,
                "learning_rate": self.plan.schedule.at(step - 1) * factor,
                "waiting": part.waiting / part.seconds,
            },
        )


class Scoring:
    """The evaluation of a run while it trains: on what is held out for it, or else on the test split."""

    def __init__(self, run: Run) -> None:
        self._run = run
        held_out = run.plan.validation if len(run.plan.validation) else None
        self._split = EVALUATION_SPLIT if held_out is None else VALIDATION
        self._batches = EvaluationInput(
            run.splits[EVALUATION_SPLIT if held_out is None else TRAINING_SPLIT],
            run.manifest,
            run.objective.fields,
            batch_size=run.recipe.evaluation_batch_size,
            ids=held_out,
        )
        self._parts = run.strategy.distribute_datasets_from_function(self._batches.dataset)
        self._steps = ScoringSteps(run.strategy, run.state.evaluated, Classification())

    def line(self, step: int) -> EvaluationLine | None:
        """Evaluates the state after ``step`` steps; None if the process is asked to end meanwhile."""
        run = self._run
        started = told = time.monotonic()

        def news(_batch: int) -> bool:
            nonlocal told
            if time.monotonic() - told > _NEWS_SECONDS:
                run.reporter.progress(step, run.plan.total_steps, "steps")
                told = time.monotonic()
            return not run.asked_to_stop()

        with self._batches.explained():
            score = self._steps.score(self._parts, self._batches.batches(run.strategy.num_replicas_in_sync), news)
        if score is None:
            return None
        run.reporter.log(f"step {step}: {self._split} loss {score.loss:.4f}, accuracy {score.accuracy:.2%}")
        return EvaluationLine(
            step=step,
            epoch=run.plan.epoch(step),
            split=self._split,
            examples=self._batches.count,
            loss=score.loss,
            accuracy=score.accuracy,
            seconds=time.monotonic() - started,
            time=time.time(),
        )
