"""Runs a training from its first to its last step: steps, evaluations, hooks, findings and checkpoints."""

# pyright: standard
from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from podline.base.errors import DivergenceError, PreemptedError, PrunedError
from podline.base.stopwatch import measured, spans
from podline.data.records import IMAGE
from podline.documents.manifest import TEST, VALIDATION
from podline.documents.metrics_log import (
    EvaluationLine,
    MetricsLine,
    MetricsLines,
    StepsLine,
)
from podline.input.pipeline import EvaluationInput
from podline.recipes.measures import measure_named, value_text
from podline.recipes.parts import HOOKS
from podline.recipes.settings import Recipe
from podline.recipes.validation import probed
from podline.stages.tools import Preflight
from podline.training.checkpoints import TimeSpent
from podline.training.decisions import Annealing, EarlyStop, Plateau, Pruner, latest
from podline.training.divergence import StopOnDivergence
from podline.training.findings import Findings, JudgeOverfitting, JudgeStretches, judge_measures, judge_probe
from podline.training.held_out_measures import HeldOutMeasures
from podline.training.hooks import Evaluate, InstalledHook, RunClock, SaveCheckpoints, StopByHooks, WriteMetrics
from podline.training.loop import Hook, StepsDone, require_keys, run_loop
from podline.training.probe import Probe
from podline.training.rehearsal import rehearse, rehearse_later_phases
from podline.training.run import Run
from podline.training.steps import ScoringSteps, provided
from podline.training.tensorboard import EventFile
from podline.training.tracing import explain, explain_evaluation

_NEWS_SECONDS = 1.0
_LOGGED = 12  # evaluations that a run logs; metrics.jsonl has all


class Hooks(NamedTuple):
    """The hooks and deciders that run between two stretches.

    Attributes:
        in_order: all hooks, in the order in which they run.
        evaluated: the step of the latest evaluation in the log of an interrupted run, or None.
    """

    in_order: list[Hook]
    evaluated: int | None
    evaluate: Evaluate
    save: SaveCheckpoints
    factor: Callable[[], float]
    early_stop: EarlyStop
    pruner: Pruner
    by_hooks: StopByHooks

    def over(self) -> bool:
        """Return whether a decider or a hook ended the run early."""
        return self.early_stop.stopped or bool(self.pruner.reason) or self.by_hooks.line is not None


def train_from(run: Run, step: int, clock: RunClock) -> int:
    """Take the remaining training steps; return how many times TensorFlow traced the step function.

    Raises:
        PreemptedError: SIGTERM asked the process to end; its progress is saved.
        PrunedError: the search pruned this trial; its progress is saved.
        SettingsError: a hook reads a quantity that no step reports.
    """
    with EventFile(run.store.local(f"{run.spec.folder}/tensorboard")) as board:

        def write(line: MetricsLine) -> None:
            run.log.write(line)
            board.write(line)

        hooks = _hooks_of(run, MetricsLines(run.log.path), write, clock, board.write)
        if hooks.evaluated != step and hooks.evaluate.at(step):
            hooks.save.at(step)
        if run.asked_to_stop():
            raise PreemptedError(f"the run was asked to end (SIGTERM) at step {step}; start it again to resume there")
        traces = 0
        if step < run.plan.total_steps and not hooks.over():
            run.reporter.progress(step, run.plan.total_steps, "steps")
            traces = _loop(run, step, hooks)
        if hooks.pruner.reason:
            raise PrunedError(hooks.pruner.reason)
        return traces


def rehearsed(run: Run) -> Preflight:
    """Rehearse the training once from the current state; write only to the logs.

    Raises:
        PodlineError: see :func:`podline.training.rehearsal.rehearse`.
    """
    hooks = _hooks_of(run, (), run.log.write, RunClock(TimeSpent(), time.monotonic())).in_order
    require_keys(hooks, provided(run.objective))
    later = rehearse_later_phases(run, 0)
    return rehearse(run, 0, run.steps(0), hooks, later)


@measured("tracing")
def _hooks_of(
    run: Run,
    log: Iterable[MetricsLine],
    write: Callable[[MetricsLine], None],
    clock: RunClock,
    *listeners: Callable[[MetricsLine], None],
) -> Hooks:
    """Create the hooks that run between stretches of steps; :mod:`podline.training.hooks` explains their order.

    Args:
        run: the run.
        log: the lines of the run's ``metrics.jsonl`` so far; they are iterated once.
        write: appends a line to ``metrics.jsonl``.
        clock: measures the time that the run takes.
        listeners: called with each line of the log.
    """
    recipe, plan, scoring = run.recipe, run.plan, Scoring(run)
    divergence = StopOnDivergence(plan.order, recipe.explosion, lambda failure: explain(run, failure))
    findings, probe = Findings(write, run.reporter.warn), _probe(run)
    stretches, overfitting = JudgeStretches(findings), JudgeOverfitting(findings, _against_overfitting(recipe))
    lines = list[MetricsLine]()
    for line in log:
        for note in (findings.note, divergence.note, stretches.note, overfitting.note, *listeners):
            note(line)
        if not isinstance(line, StepsLine):
            lines.append(line)
    plateau = Plateau(recipe.schedule.plateau, lines, write, run.tell, plan.rate)
    annealing = Annealing(recipe.annealing, recipe.seed, plan.total_steps, lines, write, run.tell, run.go_back_to)
    early_stop = EarlyStop(recipe.early_stop, plan, lines, write, run.tell, run.go_back_to)
    pruner = Pruner(run.spec.pruning, plan.total_steps, lines)

    def judge(line: EvaluationLine) -> None:
        judge_probe(findings, line.step, probe.figures())
        judge_measures(findings, line, run.objective, plan.phases[0].schedule.warmup)
        overfitting.note(line)
        overfitting.judge(line.step)

    def write_steps(line: StepsLine) -> None:
        write(line)
        overfitting.note(line)

    def rehearse_evaluation() -> float:
        probe.figures()
        return scoring.rehearse()

    decide = (judge, plateau.decide, annealing.decide, early_stop.decide, pruner.decide)
    evaluate = Evaluate(scoring.line, write, plan, rehearse_evaluation, decide)
    save = SaveCheckpoints(
        run.checkpoints,
        run.state.snapshot,
        run.log.mark,
        every_steps=recipe.checkpoint_steps,
        every_minutes=recipe.checkpoint_minutes,
        clock=clock,
        protected_step=lambda: annealing.accepted() or early_stop.needed(),
        due=lambda step: made.over() or (recipe.keep == "all" and step in plan.evaluations),
        check=run.require_data_unchanged,
        agreed=run.agreement.of_chief,
    )
    installed = [InstalledHook(HOOKS.title(name), HOOKS.call(name, run)) for name in recipe.hooks]
    by_hooks = StopByHooks(installed, lines, write, run.agreement.any)
    hooks = [
        divergence,
        clock,
        WriteMetrics(write_steps, plan, recipe.summary_steps, clock, run.objective, plateau.factor),
        stretches,
        evaluate,
        *installed,
        by_hooks,
        save,
    ]
    evaluated = latest(lines, EvaluationLine)
    made = Hooks(hooks, evaluated and evaluated.step, evaluate, save, plateau.factor, early_stop, pruner, by_hooks)
    return made


def _against_overfitting(recipe: Recipe) -> list[str]:
    best = (
        [] if recipe.early_stop else ["--set validation_share=0.1 --set early_stop.patience=0.5 keeps the best weights"]
    )
    begun = recipe.init or recipe.further or recipe.pretrained
    weights = "" if begun else f" or pretrained weights ({recipe.task.asks_for_weights})"
    return [*best, f"more training images{' or' if begun else ','} stronger augmentation{weights} reduce overfitting"]


def _loop(run: Run, step: int, made: Hooks) -> int:
    hooks, factor = made.in_order, made.factor
    require_keys(hooks, provided(run.objective))
    with measured("tracing"):
        later = rehearse_later_phases(run, step) if run.spec.preflight else []
        steps = run.steps(step, factor)
        if run.spec.preflight:
            for line in rehearse(run, step, steps, hooks, later).lines():
                run.reporter.log(line)
            steps.rewind(step)
    run_loop(
        steps.advance,
        step,
        run.plan.total_steps,
        hooks=hooks,
        news=lambda done, part: _news(run, done, part, factor()),
        asked_to_stop=run.asked_to_stop,
        over=made.over,
        agreed=run.agreement.of_chief,
    )
    return steps.traces


def _probe(run: Run) -> Probe:
    """Return a probe of the evaluated model, with images spread evenly over the test split."""
    test = run.test_reader
    ids = np.linspace(0, len(test), probed(run.manifest), endpoint=False).astype(np.int64)
    images = test.gather(ids, (IMAGE,))[IMAGE]
    return Probe(run.strategy, run.state.evaluated, images, run.recipe.model.data_format)


def _news(run: Run, step: int, part: StepsDone, factor: float) -> None:
    examples = part.steps * run.plan.phase(step - 1).recipe.batch_size
    run.reporter.progress(
        step,
        run.plan.total_steps,
        "steps",
        {
            "loss": float(np.mean(part.series["loss"])),
            **run.objective.headline(part.sums(run.objective.measured), examples),
            "examples/s": examples / part.seconds,
            "learning_rate": run.plan.rate(step - 1) * factor,
            "waiting": part.waiting / part.seconds,
        },
    )


class Scoring:
    """Evaluates a run during its training: on the held-out examples if there are any, else on the test split."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._split = TEST if run.plan.evaluated == TEST else VALIDATION
        self._reader = run.evaluated_reader
        self._batches = EvaluationInput(
            self._reader,
            run.manifest,
            run.objective.fields,
            batch_size=run.recipe.evaluation_batch_size,
            ids=run.plan.held_out,
        )
        self._parts = run.strategy.distribute_datasets_from_function(self._batches.dataset)
        self._objective = run.objective.evaluated
        self._measures = HeldOutMeasures(run.recipe, run.manifest)
        self._steps = ScoringSteps(
            run.strategy, run.state.evaluated, self._objective, jit=run.recipe.jit, kept=self._measures.target
        )
        # The steps whose evaluation is logged: the last evaluation, and earlier ones at equal intervals.
        self._logged = frozenset(run.plan.evaluations[:: -math.ceil(len(run.plan.evaluations) / _LOGGED)])

    def rehearse(self) -> float:
        """Score one batch, and compute the measures; return the estimated seconds for all batches.

        Raises:
            SettingsError: a measure raises, or does not return finite numbers.
        """
        score, seconds = None, 0.0
        with self._batches.explained():
            for _ in range(2):  # the first call also traces the graph
                started = time.monotonic()
                score = self._steps.score(self._parts, 1, lambda _batch: True)
                seconds = time.monotonic() - started
        started = time.monotonic()
        if score and (target := self._measures.target):
            # A single batch may lack a class that a measure needs, so its outputs are repeated for all targets.
            ids = np.arange(self._batches.count) if self._batches.ids is None else self._batches.ids
            targets = self._reader.gather(ids, (target,))[target]
            self._measures.of(np.resize(score.outputs, (len(targets), *score.outputs.shape[1:])), targets)
        count = self._batches.batches(self._run.strategy.num_replicas_in_sync)
        return seconds * count + time.monotonic() - started

    def line(self, step: int) -> EvaluationLine | None:
        """Evaluate the state after ``step`` steps; return None if SIGTERM interrupts the evaluation.

        Raises:
            DivergenceError: the loss is not finite; the message names the examples.
        """
        run = self._run
        started = reported = time.monotonic()

        def news(_batch: int) -> bool:
            nonlocal reported
            if time.monotonic() - reported > _NEWS_SECONDS:
                run.reporter.progress(step, run.plan.total_steps, "steps")
                reported = time.monotonic()
            return not run.asked_to_stop()

        with self._batches.explained():
            score = self._steps.score(self._parts, self._batches.batches(run.strategy.num_replicas_in_sync), news)
        if score is None:
            return None
        if not np.isfinite(score.loss):
            cause = explain_evaluation(run, self._objective, self._batches, self._reader)
            raise DivergenceError(f"the loss of the {self._split} split is {score.loss} after step {step}\n{cause}")
        measures = self._measures.of(score.outputs, score.targets) if self._measures.target else {}
        shares = self._objective.headline(score.sums, score.examples).items()
        said = [f"loss {score.loss:.4f}", *(f"{name} {share:.2%}" for name, share in shares)]
        said += [f"{measure_named(name).label} {value_text(name, value)}" for name, value in measures.items()]
        if step in self._logged:
            run.reporter.log(f"step {step}: {self._split} {', '.join(said)}")
        figures: Any = self._objective.figures(score.sums, score.examples)
        return EvaluationLine(
            step=step,
            epoch=run.plan.epoch(step),
            split=self._split,
            examples=self._batches.count,
            loss=score.loss,
            seconds=time.monotonic() - started,
            time=time.time(),
            spans=spans(),
            **figures | {"measures": {**figures.get("measures", {}), **measures}},
        )
