"""Runs a training from its first to its last step: steps, evaluations, hooks, findings and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from podline.documents.manifest import VALIDATION
from podline.documents.metrics_log import (
    EvaluationLine,
    MetricsLine,
    MetricsLines,
    StepsLine,
)
from podline.errors import DivergenceError, PreemptedError, PrunedError
from podline.figures import value_text
from podline.frozen import JsonObject
from podline.input.pipeline import EvaluationInput
from podline.measures import measure_named
from podline.recipes.parts import HOOKS
from podline.recipes.settings import Recipe
from podline.recipes.validation import probed
from podline.stages.tools import Preflight
from podline.stopwatch import measured, spans
from podline.training.checkpoints import TimeSpent
from podline.training.decisions import Annealing, EarlyStop, Plateau, Pruner
from podline.training.divergence import StopOnDivergence
from podline.training.findings import Findings, JudgeOverfitting, JudgeStretches, judge_measures, judge_probe
from podline.training.held_out_measures import HeldOutMeasures
from podline.training.hooks import Evaluate, InstalledHook, RunClock, SaveCheckpoints, StopByHooks, WriteMetrics
from podline.training.loop import Hook, StepsDone, require_keys, run_loop
from podline.training.objective import IMAGE
from podline.training.plan import EVALUATION_SPLIT
from podline.training.probe import Probe
from podline.training.rehearsal import rehearse, rehearse_later_phases
from podline.training.run import Run
from podline.training.steps import ScoringSteps, provided
from podline.training.tensorboard import EventFile
from podline.training.tracing import explain, explain_evaluation

_NEWS_SECONDS = 1.0
_TOLD = 12  # evaluations in the log


class Between(NamedTuple):
    """The work between two stretches: the hooks in order, two of them by name, the deciders and the findings."""

    hooks: list[Hook]
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
    """Take the remaining steps; return how many times TensorFlow traced the step.

    Raises:
        PreemptedError: SIGTERM asked the process to end; its progress is saved.
        PrunedError: the search pruned this trial; its progress is saved.
        SettingsError: a hook reads a quantity that no step reports.
    """
    lines = MetricsLines(run.log.path)
    with EventFile(run.store.local(f"{run.spec.folder}/tensorboard"), lines) as board:

        def write(line: MetricsLine) -> None:
            run.log.write(line)
            board.write(line)

        between = _between(run, lines, lines.rare(), write, clock)
        evaluated = any(isinstance(line, EvaluationLine) and line.step == step for line in lines.rare())
        if not evaluated and between.evaluate.at(step):
            between.save.at(step)
        if run.asked_to_stop():
            raise PreemptedError(f"asked to end (SIGTERM) at step {step}; start it again to go on from there")
        traces = 0
        if step < run.plan.total_steps and not between.over():
            run.reporter.progress(step, run.plan.total_steps, "steps")
            traces = _loop(run, step, between)
        if between.pruner.reason:
            raise PrunedError(between.pruner.reason)
        return traces


def rehearsed(run: Run) -> Preflight:
    """Rehearse every part once from the current state; change only the logs.

    Raises:
        PodlineError: see :func:`podline.training.rehearsal.rehearse`.
    """
    between = _between(run, (), (), run.log.write, RunClock(TimeSpent(), time.monotonic()))
    require_keys(between.hooks, provided(run.objective))
    later = rehearse_later_phases(run, 0)
    return rehearse(run, 0, run.steps(0), between.hooks, later)


@measured("tracing")
def _between(
    run: Run,
    log: Iterable[MetricsLine],
    lines: Sequence[MetricsLine],
    write: Callable[[MetricsLine], None],
    clock: RunClock,
) -> Between:
    """Create the hooks that run between stretches of steps; :mod:`podline.training.hooks` explains their order.

    Args:
        run: the run.
        log: its lines so far, read anew by each iteration.
        lines: those that are no training steps.
        write: writes a line.
        clock: the time that the run has taken.
    """
    recipe, plan, scoring = run.recipe, run.plan, Scoring(run)
    plateau = Plateau(recipe.schedule.plateau, lines, write, run.tell, plan.rate)
    annealing = Annealing(recipe.annealing, recipe.seed, plan.total_steps, lines, write, run.tell, run.go_back_to)
    early_stop = EarlyStop(recipe.early_stop, plan, lines, write, run.tell, run.go_back_to)
    pruner = Pruner(run.spec.pruning, plan.total_steps, lines)
    findings, probe = Findings(lines, write, run.reporter.warn), _probe(run)
    overfitting = JudgeOverfitting(findings, log, _against_overfitting(recipe))

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
        accepted=lambda: annealing.accepted() or early_stop.needed(),
        due=lambda step: between.over() or (recipe.keep == "all" and step in plan.evaluations),
        check=run.require_data_unchanged,
        agreed=run.agreement.of_chief,
    )
    installed = [InstalledHook(HOOKS.title(name), HOOKS.call(name, run)) for name in recipe.hooks]
    by_hooks = StopByHooks(installed, lines, write, run.agreement.any)
    hooks = [
        StopOnDivergence(plan.order, recipe.explosion, _steps(log), lambda failure: explain(run, failure)),
        clock,
        WriteMetrics(write_steps, plan, recipe.summary_steps, clock, run.objective, plateau.factor),
        JudgeStretches(findings, _steps(log)),
        evaluate,
        *installed,
        by_hooks,
        save,
    ]
    between = Between(hooks, evaluate, save, plateau.factor, early_stop, pruner, by_hooks)
    return between


def _steps(log: Iterable[MetricsLine]) -> Iterator[StepsLine]:
    return (line for line in log if isinstance(line, StepsLine))


def _against_overfitting(recipe: Recipe) -> list[str]:
    best = (
        [] if recipe.early_stop else ["--set validation_share=0.1 --set early_stop.patience=0.5 keeps the best weights"]
    )
    weights = "" if recipe.init or recipe.further else f" or pretrained weights ({recipe.task.asks_for_weights})"
    return [*best, f"more training images, stronger augmentation{weights} lessen it"]


def _loop(run: Run, step: int, between: Between) -> int:
    hooks, factor = between.hooks, between.factor
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
        over=between.over,
        agreed=run.agreement.of_chief,
    )
    return steps.traces


def _probe(run: Run) -> Probe:
    """Return a probe of the evaluated model, with images from the whole test split."""
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
        self._split = EVALUATION_SPLIT if run.plan.evaluated == EVALUATION_SPLIT else VALIDATION
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
        # The last one, and as many before it as a terminal shows well; metrics.jsonl has all.
        self._told = frozenset(run.plan.evaluations[:: -math.ceil(len(run.plan.evaluations) / _TOLD)])

    def rehearse(self) -> float:
        """Score one batch; return the estimated seconds for all batches."""
        seconds = 0.0
        with self._batches.explained():
            for _ in range(2):  # the first call also traces the graph
                started = time.monotonic()
                self._steps.score(self._parts, 1, lambda _batch: True)
                seconds = time.monotonic() - started
        return seconds * self._batches.batches(self._run.strategy.num_replicas_in_sync)

    def line(self, step: int) -> EvaluationLine | None:
        """Evaluate the state after ``step`` steps; return None if SIGTERM interrupts the evaluation.

        Raises:
            DivergenceError: the loss is not finite; the message names the examples.
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
        measures = self._measures.of(score.outputs, score.targets) if self._measures.target else {}
        shares = self._objective.headline(score.sums, score.examples).items()
        said = [f"loss {score.loss:.4f}", *(f"{name} {share:.2%}" for name, share in shares)]
        said += [f"{measure_named(name).label} {value_text(name, value)}" for name, value in measures.items()]
        if step in self._told:
            run.reporter.log(f"step {step}: {self._split} {', '.join(said)}")
        return EvaluationLine(
            step=step,
            epoch=run.plan.epoch(step),
            split=self._split,
            examples=self._batches.count,
            loss=score.loss,
            seconds=time.monotonic() - started,
            time=time.time(),
            spans=spans(),
            **_with_measures(self._objective.figures(score.sums, score.examples), measures),
        )


def _with_measures(figures: JsonObject, measures: dict[str, float]) -> JsonObject:
    """Return an objective's fields of a line with more measures."""
    own: Any = figures.get("measures", {})
    return {**figures, "measures": {**own, **measures}}
