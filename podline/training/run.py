"""Assembles a training run: model, state, steps, hooks, evaluation."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from podline import entry_points
from podline.data.reader import SplitReader
from podline.documents.initial_weights import InitialWeights
from podline.documents.manifest import Manifest
from podline.documents.metrics_log import (
    EvaluationLine,
    EventKind,
    EventLog,
    MetricsLine,
    MetricsLog,
    StepsLine,
    read_metrics,
)
from podline.errors import DivergenceError, PodlineError, PreemptedError
from podline.input.pipeline import EvaluationInput, TrainingInput
from podline.kinds.table import kind_of
from podline.ledger import provenance
from podline.ledger.paces import earlier, trained_at
from podline.ledger.recording import plain
from podline.ledger.slowness import EARLY_FACTOR, Slowness, slowness
from podline.plurals import plural
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.stages.preflight import Preflight
from podline.stages.specs import TrainSpec
from podline.stages.table import TRAIN
from podline.store.contract import Store
from podline.training import devices
from podline.training.agreement import Agreement
from podline.training.annealing import Annealing
from podline.training.checkpoints import CheckpointFolder, TimeSpent
from podline.training.divergence import StopOnDivergence
from podline.training.findings import Findings, JudgeStretches, judge_pace, judge_probe, judge_stages
from podline.training.further import Finished
from podline.training.hooks import Evaluate, RunClock, SaveCheckpoints, WriteMetrics
from podline.training.initial_weights import take_weights
from podline.training.loop import Hook, StepsDone, require_keys, run_loop
from podline.training.objective import IMAGE, Objective
from podline.training.optimizers import build_optimizer
from podline.training.pace import Watched
from podline.training.phases import PhasedSteps, let_train
from podline.training.plan import EVALUATION_SPLIT, TRAINING_SPLIT, VALIDATION, Phase, Plan
from podline.training.plateau import Plateau
from podline.training.probe import Probe
from podline.training.rehearsal import permanent, rehearse
from podline.training.state import TrainingState
from podline.training.steps import ScoringSteps, TrainingSteps, provided
from podline.training.tensorboard import EventFile
from podline.training.tracing import explain, explain_evaluation

_NEWS_SECONDS = 1.0
# Processes that run or wait, by core: more than training alone makes.
_BUSY = 2.0
# Images that a model is looked at with: so many, and so many pixels, as all that their layers put out may be in memory
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


HOOKS = "podline.hooks"
"""The group of entry points by which installed packages add hooks: functions of a :class:`Run` that give a hook."""


class Between(NamedTuple):
    """What happens between the stretches: the hooks in order, one of them, the rate's factor, the findings."""

    hooks: list[Hook]
    evaluate: Evaluate
    factor: Callable[[], float]
    findings: Findings


@dataclass(frozen=True)
class Run:
    """What the parts of a run share.

    Attributes:
        spec: what is trained on what.
        shared: the store that holds other runs too.
        store: where this process writes.
        manifest: of the data set.
        splits: its readers, by the splits' names.
        plan: the run in steps.
        objective: what is trained for.
        strategy: what it runs under.
        base: the run that is trained further, if there is one.
        state: everything that training changes.
        log: ``metrics.jsonl``.
        events: ``events.jsonl``.
        reporter: is told of progress.
        agreement: how the processes that train together decide as one.
        asked_to_stop: whether any of them was asked to end; a question to all of them.
    """

    spec: TrainSpec
    shared: Store
    store: Store
    manifest: Manifest
    splits: dict[str, SplitReader]
    plan: Plan
    objective: Objective
    strategy: tf.distribute.Strategy
    base: Finished | None
    state: TrainingState
    log: MetricsLog
    events: EventLog
    reporter: Reporter
    agreement: Agreement
    asked_to_stop: Callable[[], bool]

    @property
    def recipe(self) -> Recipe:
        """What is trained, and how."""
        return self.spec.recipe

    @property
    def checkpoints(self) -> CheckpointFolder:
        """The run's checkpoints."""
        return CheckpointFolder(self.store, self.spec.folder, self.spec.digest())

    @property
    def training_reader(self) -> SplitReader:
        """What is trained on."""
        return self.splits[TRAINING_SPLIT]

    def require_data_unchanged(self) -> None:
        """Makes sure that the data are what was verified when the run began.

        Raises:
            ArtifactError: a file was changed since.
        """
        for split in self.splits.values():
            split.require_unchanged()

    def train_from(self, step: int, clock: RunClock) -> None:
        """Takes the steps that are left, with all that happens between them.

        Raises:
            PreemptedError: the process was asked to end; what was done is saved.
            SettingsError: a hook looks for what no step tells.
        """
        lines = read_metrics(self.log.path)
        with EventFile(self.store.local(f"{self.spec.folder}/tensorboard"), lines) as board:

            def write(line: MetricsLine) -> None:
                self.log.write(line)
                board.write(line)

            between = self._between(lines, write, clock)
            if not any(isinstance(line, EvaluationLine) and line.step == step for line in lines):
                between.evaluate.at(step)
            if self.asked_to_stop():
                raise PreemptedError(f"asked to end (SIGTERM) at step {step}; start it again to go on from there")
            if step == self.plan.total_steps:
                return
            self.reporter.progress(step, self.plan.total_steps, "steps")
            self._loop(step, between)

    def go_back_to(self, step: int) -> None:
        """Sets the state to that of an earlier step, but for the number of steps done."""
        self.state.go_back(self.checkpoints.arrays(self.checkpoints.describe(step)))

    def preflight(self) -> Preflight:
        """Does everything once, from the state as it is, and changes nothing but its logs.

        Raises:
            PodlineError: see :func:`podline.training.rehearsal.rehearse`.
        """
        between = self._between((), self.log.write, RunClock(TimeSpent(), time.monotonic()))
        require_keys(between.hooks, provided(self.objective))
        batches = self.batches()
        with batches.explained():
            return rehearse(self, 0, batches, self.steps(batches, 0), between.hooks)

    def tell(self, event: EventKind, step: int, message: str) -> None:
        """Says what happened, in the log and in ``events.jsonl``."""
        self.events.write(event, step, message)
        self.reporter.log(message)

    def _between(self, lines: Sequence[MetricsLine], write: Callable[[MetricsLine], None], clock: RunClock) -> Between:
        """What happens between the stretches; :mod:`podline.training.hooks` says why in this order."""
        recipe, plan, scoring = self.recipe, self.plan, Scoring(self)
        plateau = Plateau(recipe.schedule.plateau, lines, write, self.tell)
        annealing = Annealing(recipe.annealing, recipe.seed, plan.total_steps, lines, write, self.tell, self.go_back_to)
        findings, probe = Findings(lines, write, self.reporter.warn), self._probe()

        def judge(line: EvaluationLine) -> None:
            judge_probe(findings, line.step, probe.figures())
            judge_stages(findings, line, plan.schedule.warmup)

        evaluate = Evaluate(scoring.line, write, plan, scoring.rehearse, (judge, plateau.decide, annealing.decide))
        before = [line for line in lines if isinstance(line, StepsLine)]
        hooks = [
            StopOnDivergence(plan.order, recipe.explosion, before, lambda failure: explain(self, failure)),
            clock,
            WriteMetrics(write, plan, recipe.summary_steps, clock, self.objective, plateau.factor),
            JudgeStretches(findings, before),
            evaluate,
            *(entry_points.named(HOOKS, name, "hook")(self) for name in recipe.hooks),
            SaveCheckpoints(
                self.checkpoints,
                self.state.snapshot,
                self.log.mark,
                every_steps=recipe.checkpoint_steps,
                every_minutes=recipe.checkpoint_minutes,
                clock=clock,
                accepted=annealing.accepted,
                check=self.require_data_unchanged,
                agreed=self.agreement.of_chief,
            ),
        ]
        return Between(hooks, evaluate, plateau.factor, findings)

    def _slowness(self, seconds: float, waiting: float) -> Slowness | None:
        """Whether an example takes longer than in earlier runs of the recipe, and why."""
        try:
            before = earlier(self.shared, self.recipe.name, plain(self.recipe), TRAIN.name)
        except PodlineError as error:
            self.reporter.warn(f"the pace was not held against earlier runs: {error}")
            return None
        where = provenance.environment(self.spec.strategy, devices.describe(self.strategy))
        found = slowness(trained_at(1 / seconds, waiting, where), before, EARLY_FACTOR)
        load = os.getloadavg()[0]
        if found and load > _BUSY * where.cores:
            cause = f"{found.cause}; other processes use the machine (load {load:.1f} on {plural(where.cores, 'core')})"
            found = found._replace(cause=cause)
        return found

    def _loop(self, step: int, between: Between) -> None:
        hooks, _, factor, findings = between
        require_keys(hooks, provided(self.objective))
        batches = self.batches()
        with batches.explained():
            steps = self.steps(batches, step, factor)
            if self.spec.preflight:
                for line in rehearse(self, step, batches, steps, hooks).lines():
                    self.reporter.log(line)
                steps.rewind(step)
            watched = Watched(
                steps.advance,
                step,
                lambda taken: self.plan.phase(taken).batch_size,
                lambda taken, seconds, waiting: judge_pace(findings, taken, self._slowness(seconds, waiting)),
            )
            run_loop(
                watched.advance,
                step,
                self.plan.total_steps,
                hooks=hooks,
                news=lambda done, part: self._news(done, part, factor()),
                asked_to_stop=self.asked_to_stop,
                agreed=self.agreement.of_chief,
            )

    def _probe(self) -> Probe:
        """A look into the model that is evaluated, at images from all over the test split."""
        test = self.splits[EVALUATION_SPLIT]
        ids = np.linspace(0, len(test), few(test, self.manifest), endpoint=False).astype(np.int64)
        images = test.gather(ids, (IMAGE,))[IMAGE]
        return Probe(self.strategy, self.state.evaluated, images, self.recipe.model.data_format)

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

    def begun_again(self) -> Run:
        """The same run with the state that training begins with, made anew."""
        state = initial_state(self.recipe, self.manifest, self.strategy, self.state.steps_before)
        again = dataclasses.replace(self, state=state)
        again.begin()
        return again

    def on_cpu(self, model: keras.Model) -> keras.Model:
        """A copy of the run's model, or of its average, as it is, which nothing else uses."""
        with tf.device("CPU:0"):
            copy = kind_of(self.recipe).model(self.recipe, self.manifest)
            copy.set_weights(model.get_weights())
        return copy

    def batches(self) -> TrainingInput:
        """The run's input."""
        return TrainingInput(
            self.training_reader,
            self.manifest,
            self.objective.fields,
            order=self.plan.order,
            augmentation=self.recipe.image_augmentation,
            later=self.recipe.changing.augmentation,
        )

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
        let_train(self.state.model, phase.trainable_layers)
        self.reporter.log("turning the training step into a graph")
        with permanent(self):
            steps = TrainingSteps(
                strategy, self.state, self.plan.schedule, self.objective, parts, phase.batch_size, factor
            )
        self.reporter.log(f"that took {steps.tracing_seconds:.1f} s; the first step comes now")
        return steps

    def _news(self, step: int, part: StepsDone, factor: float) -> None:
        examples = part.steps * self.plan.phase(step - 1).batch_size
        name, share = self.objective.headline(part.sums(self.objective.measured), examples)
        self.reporter.progress(
            step,
            self.plan.total_steps,
            "steps",
            {
                "loss": float(np.mean(part.series["loss"])),
                name: share,
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
        self._reader = run.splits[EVALUATION_SPLIT if held_out is None else TRAINING_SPLIT]
        self._batches = EvaluationInput(
            self._reader,
            run.manifest,
            run.objective.fields,
            batch_size=run.recipe.evaluation_batch_size,
            ids=held_out,
        )
        self._parts = run.strategy.distribute_datasets_from_function(self._batches.dataset)
        self._objective = run.objective.evaluated
        self._steps = ScoringSteps(run.strategy, run.state.evaluated, self._objective)

    def rehearse(self) -> float:
        """Scores one batch; how many seconds all of them will take."""
        seconds = 0.0
        with self._batches.explained():
            for _ in range(2):  # the first time it is turned into a graph as well
                started = time.monotonic()
                self._steps.score(self._parts, 1, lambda _batch: True)
                seconds = time.monotonic() - started
        return seconds * self._batches.batches(self._run.strategy.num_replicas_in_sync)

    def line(self, step: int) -> EvaluationLine | None:
        """Evaluates the state after ``step`` steps; None if the process is asked to end meanwhile.

        Raises:
            DivergenceError: the loss is no finite number; names the examples.
        """
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
        if not np.isfinite(score.loss):
            cause = explain_evaluation(run, self._objective, self._batches, self._reader)
            raise DivergenceError(f"the loss of the {self._split} split is {score.loss} after step {step}\n{cause}")
        name, share = self._objective.headline(score.sums, score.examples)
        run.reporter.log(f"step {step}: {self._split} loss {score.loss:.4f}, {name} {share:.2%}")
        return EvaluationLine(
            step=step,
            epoch=run.plan.epoch(step),
            split=self._split,
            examples=self._batches.count,
            loss=score.loss,
            seconds=time.monotonic() - started,
            time=time.time(),
            **self._objective.figures(score.sums, score.examples),
        )
