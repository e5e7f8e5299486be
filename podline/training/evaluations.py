"""Evaluates a run during its training: on the validation split, else on held-out examples, else on the test split."""

# pyright: standard
from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from podline.base.errors import DivergenceError, SettingsError
from podline.base.stopwatch import measured, spans
from podline.contract.kind import kind_of
from podline.documents.manifest import TEST, VALIDATION
from podline.documents.metrics_log import EvaluationLine
from podline.input.pipeline import EvaluationInput
from podline.recipes.measures import Measure, measure_named, of_kind, value_text
from podline.training.loop import Hook, Stretch
from podline.training.run import Run
from podline.training.steps import Score, ScoringSteps
from podline.training.tracing import explain_evaluation

_NEWS_SECONDS = 1.0
_LOGGED = 12  # evaluations that a run logs; metrics.jsonl has all


class Evaluate(Hook):
    """Evaluates at the steps of the plan, and passes each evaluation to the deciders.

    Attributes:
        rehearsed: estimated seconds of an evaluation, after :meth:`rehearse`.
    """

    def __init__(
        self,
        run: Run,
        write: Callable[[EvaluationLine], None],
        probe: Callable[[], object],
        decide: Sequence[Callable[[EvaluationLine], None]],
    ) -> None:
        """Check the names of measures, and prepare the evaluations.

        Args:
            run: the run to evaluate.
            write: writes an evaluation's line.
            probe: runs the model on the probe's images; called in a rehearsal.
            decide: deciders, which are called in order with each line, after it is written.

        Raises:
            SettingsError: the recipe names a measure that the kind does not have, or for which the data set has too
                few classes.
        """
        self._run, self._write, self._probe, self._decide = run, write, probe, decide
        self._due, self._objective = run.plan.evaluations, run.objective.evaluated
        self._split = TEST if run.plan.evaluated == TEST else VALIDATION
        self._batches = EvaluationInput(
            run.evaluated_reader,
            run.manifest,
            run.objective.fields,
            batch_size=run.recipe.evaluation_batch_size,
            ids=run.plan.held_out,
        )
        self._count = self._batches.batches(run.strategy.num_replicas_in_sync)
        self._parts = run.strategy.distribute_datasets_from_function(self._batches.dataset)
        self._kind = kind_of(run.recipe)
        self._measures = _held_out_measures(run)
        self._target = self._kind.target if self._measures else ""
        self._steps = ScoringSteps(
            run.strategy, run.state.evaluated, self._objective, jit=run.recipe.jit, kept=self._target
        )
        # The steps whose evaluation is logged: the last evaluation, and earlier ones at equal intervals.
        self._logged = frozenset(self._due[:: -math.ceil(len(self._due) / _LOGGED)])
        self.rehearsed = 0.0

    def next_stop(self, step: int) -> int:
        """Return the step of the next evaluation in the plan."""
        return self._due[bisect.bisect_right(self._due, step)]

    def after(self, stretch: Stretch) -> None:
        """Evaluate if the plan has an evaluation after this step."""
        self.at(stretch.step)

    def at(self, step: int) -> bool:
        """Evaluate if the plan has an evaluation after ``step`` steps; return whether it was completed.

        A run calls this when it resumes at a step whose evaluation was interrupted.

        Raises:
            DivergenceError: the loss is not finite; the message names the examples.
        """
        with measured("evaluation"):
            line = self._line(step) if step in self._due else None
        if line is not None:
            self._write(line)
            for decide in self._decide:
                decide(line)
        return line is not None

    def rehearse(self, stretch: Stretch) -> None:  # noqa: ARG002 (any weights will do)
        """Run the probe, score one batch, and compute the measures.

        Raises:
            SettingsError: a measure raises, or does not return finite numbers.
        """
        self._probe()
        score, seconds = None, 0.0
        with self._batches.explained():
            for _ in range(2):  # the first call also traces the graph
                started = time.monotonic()
                score = self._steps.score(self._parts, 1, lambda _batch: True)
                seconds = time.monotonic() - started
        started = time.monotonic()
        if score and self._target:
            # A single batch may lack a class that a measure needs, so its outputs are repeated for all targets.
            ids = np.arange(self._batches.count) if self._batches.ids is None else self._batches.ids
            targets = self._run.evaluated_reader.gather(ids, (self._target,))[self._target]
            outputs = np.resize(score.outputs, (len(targets), *score.outputs.shape[1:]))
            self._kind.measured(outputs, targets, self._measures, self._run.recipe)
        self.rehearsed = seconds * self._count + time.monotonic() - started

    def _line(self, step: int) -> EvaluationLine | None:
        """Evaluate the state after ``step`` steps; return None if SIGTERM interrupts the evaluation."""
        started, run = time.monotonic(), self._run
        score = self._score(step)
        if score is None:
            return None
        if not np.isfinite(score.loss):
            cause = explain_evaluation(run, self._objective, self._batches, run.evaluated_reader)
            raise DivergenceError(f"the loss of the {self._split} split is {score.loss} after step {step}\n{cause}")
        measures = {}
        if self._target:
            measures = self._kind.measured(score.outputs, score.targets, self._measures, run.recipe)
        if step in self._logged:
            shares = self._objective.headline(score.sums, score.examples).items()
            said = [f"loss {score.loss:.4f}", *(f"{name} {share:.2%}" for name, share in shares)]
            said += [f"{measure_named(name).label} {value_text(name, value)}" for name, value in measures.items()]
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

    def _score(self, step: int) -> Score | None:
        run, reported = self._run, time.monotonic()

        def news(_batch: int) -> bool:
            nonlocal reported
            if time.monotonic() - reported > _NEWS_SECONDS:
                run.reporter.progress(step, run.plan.total_steps, "steps")
                reported = time.monotonic()
            return not run.asked_to_stop()

        with self._batches.explained():
            return self._steps.score(self._parts, self._count, news)


def _held_out_measures(run: Run) -> list[Measure]:
    """Return the measures that the recipe computes during training, for the log or for a decision."""
    recipe, classes = run.recipe, run.manifest.class_names
    known = {
        measure.name: measure
        for measure in (of_kind(recipe.kind) if kind_of(recipe).target else ())
        if not classes or len(classes) >= measure.least_classes
    }
    for name in recipe.held_out_measures:
        if name not in known:
            metrics = ("loss", "error") if recipe.task.has_error else ("loss",)
            there = ", ".join(dict.fromkeys((*metrics, *known))) + ("" if known else ": its kind has no measures here")
            raise SettingsError(f"got measure {name!r} for {run.manifest.dataset}, expected one of {there}")
    return [known[name] for name in recipe.held_out_measures]
