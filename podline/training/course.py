"""Runs a training from its first to its last step: steps, evaluations, hooks, findings and checkpoints."""

# pyright: standard
from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np

from podline.base.errors import PreemptedError, PrunedError
from podline.base.stopwatch import measured
from podline.data.records import IMAGE
from podline.documents.metrics_log import EvaluationLine, MetricsLine, MetricsLines, StepsLine
from podline.recipes.parts import HOOKS
from podline.recipes.settings import Recipe
from podline.recipes.validation import probed
from podline.stages.tools import Preflight
from podline.training.checkpoints import TimeSpent
from podline.training.decisions import Annealing, EarlyStop, Plateau, Pruner, latest
from podline.training.divergence import StopOnDivergence
from podline.training.evaluations import Evaluate
from podline.training.findings import Findings, JudgeOverfitting, JudgeStretches, judge_measures, judge_probe
from podline.training.hooks import InstalledHook, RunClock, SaveCheckpoints, StopByHooks, WriteMetrics
from podline.training.loop import StepsDone, require_keys, run_loop
from podline.training.probe import Probe
from podline.training.rehearsal import rehearse, rehearse_later_phases
from podline.training.run import Run
from podline.training.steps import provided
from podline.training.tensorboard import EventFile
from podline.training.tracing import explain


def train_from(run: Run, step: int, clock: RunClock) -> int:
    """Take the remaining training steps; return how many times TensorFlow traced the step function.

    Raises:
        PreemptedError: SIGTERM asked the process to end; its progress is saved.
        PrunedError: the search pruned this trial; its progress is saved.
        SettingsError: a hook reads a quantity that no step reports, or the rehearsal fails.
        DivergenceError: a loss or gradient is not finite, or the loss exploded.
    """
    with EventFile(run.store.local(f"{run.spec.folder}/tensorboard")) as board:

        def write(line: MetricsLine) -> None:
            run.log.write(line)
            board.write(line)

        course = _Course(run, MetricsLines(run.log.path), write, clock, board.write)
        if course.evaluated != step and course.evaluate.at(step):
            course.save.at(step)
        if run.asked_to_stop():
            raise PreemptedError(f"the run was asked to end (SIGTERM) at step {step}; start it again to resume there")
        traces = 0
        if step < run.plan.total_steps and not course.over():
            run.reporter.progress(step, run.plan.total_steps, "steps")
            traces = course.take_steps(step)
        if course.pruner.reason:
            raise PrunedError(course.pruner.reason)
        return traces


def rehearsed(run: Run) -> Preflight:
    """Rehearse the training once from the current state; leave the state and the run's folder unchanged.

    Raises:
        PodlineError: see :func:`podline.training.rehearsal.rehearse`.
    """
    course = _Course(run, (), run.log.write, RunClock(TimeSpent(), time.monotonic()))
    require_keys(course.hooks, provided(run.objective))
    later = rehearse_later_phases(run, 0)
    return rehearse(run, 0, run.steps(0), course.hooks, later)


class _Course:
    """The hooks that run between stretches of steps; :mod:`podline.training.hooks` explains their order.

    Attributes:
        hooks: all hooks, in the order in which they run.
        evaluated: the step of the latest evaluation in the log of an interrupted run, or None.
    """

    @measured("tracing")
    def __init__(
        self,
        run: Run,
        log: Iterable[MetricsLine],
        write: Callable[[MetricsLine], None],
        clock: RunClock,
        *listeners: Callable[[MetricsLine], None],
    ) -> None:
        """Create the hooks.

        Args:
            run: the run to train.
            log: the lines of the run's ``metrics.jsonl`` so far; they are iterated once.
            write: appends a line to ``metrics.jsonl``.
            clock: measures the time that the run takes.
            listeners: called with each line of the log.
        """
        self._run, plan = run, run.plan
        divergence = StopOnDivergence(plan.order, run.recipe.explosion, lambda failure: explain(run, failure))
        findings, probe = Findings(write, run.reporter.warn), _probe(run)
        stretches, overfitting = JudgeStretches(findings), JudgeOverfitting(findings, _against_overfitting(run.recipe))
        lines = list[MetricsLine]()
        for line in log:
            for note in (findings.note, divergence.note, stretches.note, overfitting.note, *listeners):
                note(line)
            if not isinstance(line, StepsLine):
                lines.append(line)
        evaluated = latest(lines, EvaluationLine)
        self.evaluated = evaluated and evaluated.step
        self._plateau, annealing = Plateau(run, lines, write), Annealing(run, lines, write)
        self._early_stop = EarlyStop(run, lines, write)
        self.pruner = Pruner(run.spec.pruning, plan.total_steps, lines)

        def judge(line: EvaluationLine) -> None:
            judge_probe(findings, line.step, probe.figures())
            judge_measures(findings, line, run.objective, plan.phases[0].schedule.warmup)
            overfitting.note(line)
            overfitting.judge(line.step)

        def write_steps(line: StepsLine) -> None:
            write(line)
            overfitting.note(line)

        decide = (judge, self._plateau.decide, annealing.decide, self._early_stop.decide, self.pruner.decide)
        self.evaluate = Evaluate(run, write, probe.figures, decide)
        self.save = SaveCheckpoints(
            run,
            clock,
            protected_step=lambda: annealing.accepted() or self._early_stop.needed(),
            due=lambda step: self.over() or (run.recipe.keep == "all" and step in plan.evaluations),
        )
        installed = [InstalledHook(HOOKS.title(name), HOOKS.call(name, run)) for name in run.recipe.hooks]
        self._by_hooks = StopByHooks(installed, lines, write, run.agreement.any)
        metrics = WriteMetrics(run, write_steps, clock, self._plateau.factor)
        self.hooks = [divergence, clock, metrics, stretches, self.evaluate, *installed, self._by_hooks, self.save]

    def over(self) -> bool:
        """Return whether a decider or a hook ended the run early."""
        return self._early_stop.stopped or bool(self.pruner.reason) or self._by_hooks.line is not None

    def take_steps(self, step: int) -> int:
        """Train from a step to the end; return how many times TensorFlow traced the step function."""
        run, factor = self._run, self._plateau.factor
        require_keys(self.hooks, provided(run.objective))
        with measured("tracing"):
            later = rehearse_later_phases(run, step) if run.spec.preflight else []
            steps = run.steps(step, factor)
            if run.spec.preflight:
                for line in rehearse(run, step, steps, self.hooks, later).lines():
                    run.reporter.log(line)
                steps.rewind(step)
        run_loop(
            steps.advance,
            step,
            run.plan.total_steps,
            hooks=self.hooks,
            news=lambda done, part: _news(run, done, part, factor()),
            asked_to_stop=run.asked_to_stop,
            over=self.over,
            agreed=run.agreement.of_chief,
        )
        return steps.traces


def _against_overfitting(recipe: Recipe) -> list[str]:
    best = (
        [] if recipe.early_stop else ["--set validation_share=0.1 --set early_stop.patience=0.5 keeps the best weights"]
    )
    begun = recipe.init or recipe.further or recipe.pretrained
    weights = "" if begun else f" or pretrained weights ({recipe.task.asks_for_weights})"
    return [*best, f"more training images{' or' if begun else ','} stronger augmentation{weights} reduce overfitting"]


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
