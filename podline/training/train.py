"""The training stage: a recipe and a data set in, a trained model and the story of its training out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import keras
import numpy as np

from podline.data.manifest import Manifest, read_manifest
from podline.data.reader import SplitReader
from podline.errors import DivergenceError, PreemptedError
from podline.input.pipeline import EvaluationInput, TrainingInput
from podline.models.build import build_model
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.stages import TrainResult, TrainSpec, complete, manifest_sha256
from podline.storage import Store, open_store
from podline.training import devices
from podline.training.checkpoints import CheckpointFolder, Clock, restore_newest
from podline.training.export import ARCHITECTURE, KERAS, WEIGHTS, export_model
from podline.training.hooks import Evaluate, RunClock, SaveCheckpoints, StopOnDivergence, WriteMetrics
from podline.training.loop import Part, run_loop, stop_on_sigterm
from podline.training.metrics_log import (
    EVENTS,
    METRICS,
    EvaluationLine,
    EventLog,
    MetricsLog,
    StepsLine,
    read_metrics,
)
from podline.training.optimizers import build_optimizer
from podline.training.pace import Paced
from podline.training.plan import EVALUATION_SPLIT, FIELDS, TRAINING_SPLIT, Plan, plan_training
from podline.training.state import TrainingState
from podline.training.steps import ScoringSteps, TrainingSteps
from podline.training.tensorboard import EventFile

SPEC = "spec.json"
_SPLITS = (TRAINING_SPLIT, EVALUATION_SPLIT)
_EXPORT_CHECKED_ON = 64
_NEWS_SECONDS = 1.0


def train(spec: TrainSpec, reporter: Reporter) -> TrainResult:
    """Trains a recipe on a data set, or goes on where an earlier start of the same run was ended.

    It writes, in ``runs/<run>``: ``spec.json``; ``metrics.jsonl`` and ``events.jsonl``
    (:mod:`podline.training.metrics_log`); ``checkpoints/`` (:mod:`podline.training.checkpoints`); ``tensorboard/``; and
    ``model/`` (:mod:`podline.training.export`). SIGTERM makes it save a checkpoint and end.

    Args:
        spec: the recipe and the data set.
        reporter: is told of progress a few times a second, and of what a person should know.

    Raises:
        StoreError: there is no such data set, or the store cannot be written.
        SettingsError: the recipe does not fit the data set.
        ArtifactError: the data set is not what its manifest says.
        DivergenceError: a loss is no finite number.
        PreemptedError: SIGTERM came; what was done is saved.
    """
    started = time.monotonic()
    store = open_store(spec.root)
    store.sweep()
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder)
    plan = plan_training(spec.recipe, manifest)
    splits = {name: SplitReader(store.path(spec.dataset_folder), manifest, name) for name in _SPLITS}
    with stop_on_sigterm() as asked_to_stop:
        state = _initial_state(spec.recipe, manifest)
        # What cannot be opened or built has left no trace of a run up to here.
        store.publish_json(f"{spec.folder}/{SPEC}", spec.model_dump(mode="json"), replace=True)
        events = EventLog(store.path(f"{spec.folder}/{EVENTS}"))
        with MetricsLog(store.path(f"{spec.folder}/{METRICS}")) as log:
            run = _Run(spec, store, manifest, splits, plan, state, log, reporter, asked_to_stop)
            step, before = _go_on(run, events)
            clock = RunClock(before, started)
            with _noted(events, state):
                run.train_from(step, clock)
    return _finish(run, events, clock)


def initial_model(recipe: Recipe, manifest: Manifest) -> keras.Model:
    """The recipe's model with the weights that training begins with; sets this process's seeds."""
    devices.prepare(recipe.seed, deterministic=recipe.deterministic)
    with devices.choose_strategy().scope():
        return _build(recipe, manifest)


def _build(recipe: Recipe, manifest: Manifest) -> keras.Model:
    split = manifest.split(TRAINING_SPLIT)
    height, width, channels = manifest.image_shape
    return build_model(
        recipe.model, (height, width, channels), len(manifest.class_names), split.mean, split.std, recipe.seed
    )


def _initial_state(recipe: Recipe, manifest: Manifest) -> TrainingState:
    model = initial_model(recipe, manifest)
    with devices.choose_strategy().scope():
        return TrainingState(model, build_optimizer(recipe.optimizer), recipe.ema_decay)


@dataclass(frozen=True)
class _Run:
    """What the parts of a run share."""

    spec: TrainSpec
    store: Store
    manifest: Manifest
    splits: dict[str, SplitReader]
    plan: Plan
    state: TrainingState
    log: MetricsLog
    reporter: Reporter
    asked_to_stop: Callable[[], bool]

    @property
    def recipe(self) -> Recipe:
        return self.spec.recipe

    @property
    def checkpoints(self) -> CheckpointFolder:
        return CheckpointFolder(self.store, self.spec.folder, self.spec.digest())

    def train_from(self, step: int, clock: RunClock) -> None:
        """Takes the steps that are left, with all that happens between them."""
        recipe, plan = self.recipe, self.plan
        lines = read_metrics(self.log.path)
        with EventFile(self.store.path(f"{self.spec.folder}/tensorboard"), lines) as board:

            def write(line: StepsLine | EvaluationLine) -> None:
                self.log.write(line)
                board.write(line)

            evaluate = Evaluate(_Scoring(self).line, write, plan)
            if not any(isinstance(line, EvaluationLine) and line.step == step for line in lines):
                evaluate.at(step)
            if self.asked_to_stop():
                raise PreemptedError(f"asked to end (SIGTERM) at step {step}; start it again to go on from there")
            if step == plan.total_steps:
                return
            self.reporter.progress(step, plan.total_steps, "steps")
            hooks = [
                StopOnDivergence(plan.order),
                clock,
                WriteMetrics(write, plan, recipe.summary_steps, clock),
                evaluate,
                SaveCheckpoints(
                    self.checkpoints,
                    self.state.snapshot,
                    self.log.mark,
                    every_steps=recipe.checkpoint_steps,
                    every_minutes=recipe.checkpoint_minutes,
                    clock=clock,
                ),
            ]
            batches = TrainingInput(
                self.splits[TRAINING_SPLIT],
                self.manifest,
                FIELDS,
                order=plan.order,
                augmentation=recipe.augmentation,
            )
            with batches.explained():
                steps = self._steps(batches, step)
                run_loop(
                    Paced(steps.advance, self.reporter.pace).advance,
                    step,
                    plan.total_steps,
                    hooks=hooks,
                    news=self._news,
                    asked_to_stop=self.asked_to_stop,
                )

    def _steps(self, batches: TrainingInput, step: int) -> TrainingSteps:
        strategy = devices.choose_strategy()
        advice = devices.batch_advice(
            self.recipe.batch_size, strategy.num_replicas_in_sync, tpu=devices.describe(strategy).endswith("tpu")
        )
        if advice:
            self.reporter.warn(advice)
        self.reporter.log("turning the training step into a graph")
        dataset = batches.dataset(step, self.plan.total_steps)
        steps = TrainingSteps(strategy, self.state, self.plan.schedule, self.recipe, dataset)
        self.reporter.log(f"that took {steps.tracing_seconds:.1f} s; the first step comes now")
        return steps

    def _news(self, step: int, part: Part) -> None:
        examples = part.steps * self.recipe.batch_size
        self.reporter.progress(
            step,
            self.plan.total_steps,
            "steps",
            {
                "loss": float(np.mean(part.series["loss"])),
                "accuracy": float(np.sum(part.series["correct"])) / examples,
                "examples/s": examples / part.seconds,
                "learning_rate": self.plan.schedule.at(step - 1),
                "waiting": part.waiting / part.seconds,
            },
        )


class _Scoring:
    """The evaluation of a run on its test split."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._batches = EvaluationInput(
            run.splits[EVALUATION_SPLIT], run.manifest, FIELDS, batch_size=run.recipe.evaluation_batch_size
        )
        self._dataset = self._batches.dataset()
        self._steps = ScoringSteps(devices.choose_strategy(), run.state.evaluated)

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
            score = self._steps.score(self._dataset, news)
        if score is None:
            return None
        run.reporter.log(f"step {step}: {EVALUATION_SPLIT} loss {score.loss:.4f}, accuracy {score.accuracy:.2%}")
        return EvaluationLine(
            step=step,
            epoch=run.plan.epoch(step),
            split=EVALUATION_SPLIT,
            examples=self._batches.count,
            loss=score.loss,
            accuracy=score.accuracy,
            seconds=time.monotonic() - started,
            time=time.time(),
        )


def _go_on(run: _Run, events: EventLog) -> tuple[int, Clock]:
    """Restores what there is to go on from; the step and what the run has taken up to it."""

    def passed_over(step: int, reason: str) -> None:
        message = f"the checkpoint of step {step} is passed over: {reason}"
        run.reporter.warn(message)
        events.write("checkpoint_damaged", step, message)

    checkpoint = restore_newest(run.checkpoints, run.log, run.state.restore, passed_over)
    total = run.plan.total_steps
    if checkpoint is None:
        strategy, parameters = devices.choose_strategy(), run.state.model.count_params()
        message = (
            f"{run.spec.run}: {total} steps from the beginning, {parameters} parameters, {devices.describe(strategy)}"
        )
        events.write("started", 0, message)
    else:
        message = (
            f"{run.spec.run}: going on from the checkpoint of step {checkpoint.step} of {total}, the newest whole one"
        )
        events.write("restored", checkpoint.step, message)
    run.reporter.log(message)
    return (checkpoint.step, checkpoint.clock) if checkpoint else (0, Clock())


@contextlib.contextmanager
def _noted(events: EventLog, state: TrainingState) -> Iterator[None]:
    """Notes why a run ended before its time."""
    try:
        yield
    except PreemptedError as error:
        events.write("preempted", state.step, str(error))
        raise
    except DivergenceError as error:
        events.write("diverged", state.step, str(error))
        raise


def _finish(run: _Run, events: EventLog, clock: RunClock) -> TrainResult:
    """Publishes the model and leaves word that the run is done."""
    spec, plan = run.spec, run.plan
    test = run.splits[EVALUATION_SPLIT]
    images = test.gather(np.arange(min(len(test), _EXPORT_CHECKED_ON)), ("image",))["image"]
    weights_sha256 = export_model(run.store, spec.folder, run.state.evaluated, images)
    took = clock.read()
    examples = plan.total_steps * run.recipe.batch_size
    *_, last = (line for line in read_metrics(run.log.path) if isinstance(line, StepsLine))
    result = TrainResult(
        seconds=took.wall,
        run=spec.run,
        folder=spec.folder,
        steps=plan.total_steps,
        epochs=plan.epoch(plan.total_steps),
        examples=examples,
        parameters=run.state.model.count_params(),
        weights_sha256=weights_sha256,
        loss=last.loss,
        examples_per_second=examples / took.training,
        waiting_for_input=took.waiting / took.training,
        resumed_from=tuple(
            event.step for event in events.read() if event.event == "restored" and event.step < plan.total_steps
        ),
        devices=devices.describe(devices.choose_strategy()),
    )
    events.write("finished", plan.total_steps, f"{spec.run}: {plan.total_steps} steps in {took.wall:.0f} s")
    names = (SPEC, METRICS, ARCHITECTURE, WEIGHTS, KERAS)
    complete(run.store, spec.folder, spec, result, [f"{spec.folder}/{name}" for name in names])
    run.checkpoints.prune(1)
    return result
