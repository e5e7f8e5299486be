"""``metrics.jsonl`` and ``events.jsonl``: the measurements and events of a run. Needs no TensorFlow.

``metrics.jsonl`` has one line for every stretch of steps, every evaluation, decision and requested stop, and for the
beginning and the end of every finding, in order. A checkpoint records the file's length and checksum. A resumed run
truncates the file to this length, so an interruption leaves neither a gap nor a repetition.

``events.jsonl`` records all events, including interruptions, and complete lines are never removed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from podline.base.frozen import Frozen, omitted
from podline.documents.completion import local_artifact
from podline.documents.reading import misfit
from podline.store.contract import Store, explained

METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
Line = TypeVar("Line")

# Models of classes and of labels report an accuracy, other models measures.
_ACCURACY: Any = Field(default=math.nan, exclude_if=math.isnan)


class _Line(Frozen):
    """The first fields of every line.

    Attributes:
        kind: kind of the line.
        step: number of training steps that the run had done.
        time: Unix time at the end of the stretch or evaluation, or of the decision.
    """

    kind: Any
    step: int
    time: float


class StepsLine(_Line):
    """A stretch of training steps; ``step`` is the number of its last step.

    Attributes:
        epoch: number of passes over the data.
        loss: mean of ``losses``.
        accuracy: share of right answers on the augmented examples; NaN, and not in the file, for other kinds of task.
        learning_rate: learning rate of the stretch's last step.
        gradient_norm: Euclidean norm of the gradient, which is summed over the replicas, before ``clip_norm``; mean
            over the stretch's steps.
        gradient_norms: block of layers → the norm of its gradient.
        examples_per_second: mean over the stretch.
        waiting: share of the stretch's time that the device waited for input, 0…1.
        seconds: time spent in training steps so far, over all starts of the run.
        losses: the loss of each step (float32 on the device); the last value belongs to step number ``step``.
        measures: the objective's measures, instead of an accuracy; for a pose network, ``<stage>/loss`` and the metrics
            of :func:`podline.kinds.pose.stage_measures.stage_figures`.
        spans: class of time → seconds that this process has spent so far, outside of training steps.
    """

    kind: Literal["train"] = "train"
    epoch: float
    loss: float
    accuracy: float = _ACCURACY
    learning_rate: float
    gradient_norm: float
    gradient_norms: dict[str, float]
    examples_per_second: float
    waiting: float
    seconds: float
    losses: tuple[float, ...]
    measures: dict[str, float] = omitted({})
    spans: dict[str, float] = omitted({})


class EvaluationLine(_Line):
    """An evaluation during training, on every held-out example once, with the averaged weights if there are any.

    Attributes:
        epoch: number of passes over the data.
        split: ``validation``, also for held-out training examples; ``test`` if no examples are held out.
        examples: number of evaluated examples.
        loss: mean over the examples, without label smoothing and without the model's penalties.
        accuracy: see :class:`StepsLine`, without augmentation.
        seconds: duration of the evaluation.
        measures: see :class:`StepsLine`; also the measures of ``held_out_measures`` in the recipe.
        spans: see :class:`StepsLine`.
    """

    kind: Literal["evaluation"] = "evaluation"
    epoch: float
    split: str
    examples: int
    loss: float
    accuracy: float = _ACCURACY
    seconds: float
    measures: dict[str, float] = omitted({})
    spans: dict[str, float] = omitted({})


class PlateauLine(_Line):
    """The decision of ReduceLROnPlateau after an evaluation; the last such line contains the schedule's whole state.

    Attributes:
        value: the monitored metric in this evaluation.
        best: the best value so far that was a sufficient improvement.
        stalled: number of consecutive evaluations without an improvement, including this one; 0 after a lowering.
        cooling: Keras's counter of the cool-down: the following ``cooling`` - 1 evaluations do not count as stalled.
        lowered: whether this decision lowered the learning rate.
        factor: the factor by which the schedule's learning rate is multiplied from now on.
    """

    kind: Literal["plateau"] = "plateau"
    value: float
    best: float
    stalled: int
    cooling: int
    lowered: bool
    factor: float


class AnnealingLine(_Line):
    """The decision of simulated annealing on a training state; the last such line contains the schedule's whole state.

    The log also keeps the lines of steps that led to a rejected state.

    Attributes:
        number: number of the decision, from 0; number and seed determine ``draw``.
        energy: energy of the evaluated state.
        rise: increase over the energy of the last accepted state; 0 without an accepted state.
        temperature: temperature at this step.
        probability: exp(-rise / temperature).
        draw: random number in [0, 1); the state is accepted if ``draw`` is below ``probability``.
        accepted: whether the state was accepted.
        state: number of the step from whose state training continues: this step, or the last accepted one.
        against: the energy of the state from which training continues.
    """

    kind: Literal["annealing"] = "annealing"
    number: int
    energy: float
    rise: float
    temperature: float
    probability: float
    draw: float
    accepted: bool
    state: int
    against: float


class EarlyStopLine(_Line):
    """The decision of early stopping after an evaluation; the last such line contains its whole state.

    Attributes:
        value: the monitored metric in this evaluation.
        best: the best value so far that was a sufficient improvement.
        state: number of the step whose state will be restored: the step with the best value; for ``error``, the latest
            step whose error is at most a standard error above the best.
        stalled: number of consecutive evaluations without an improvement, including this one; 0 before the last phase.
        stopped: whether the run ends early at this step.
        restored: whether the run ends at this step with the state of step ``state``.
    """

    kind: Literal["early_stop"] = "early_stop"
    value: float
    best: float
    state: int
    stalled: int
    stopped: bool
    restored: bool


FindingKind = Literal[
    "dead_outputs",
    "exploding_outputs",
    "collapsed_output",
    "collapsed_stage",
    "vanishing_gradient",
    "exploding_gradient",
    "waiting_for_input",
    "overfitting",
]


class FindingLine(_Line):
    """The beginning or the end of a problem in a running training; :mod:`podline.training.findings` has the rules.

    Attributes:
        finding: name of the rule.
        where: a layer, a block of layers, an output of the model, a split, or the input.
        figures: the values that the rule checked, by name.
        message: description of the problem.
        suggestion: suggested remedy.
        over: whether this line reports the end of the problem.
    """

    kind: Literal["finding"] = "finding"
    finding: FindingKind
    where: str
    figures: dict[str, float]
    message: str
    suggestion: str
    over: bool = False


class StopLine(_Line):
    """The early end of a run at the request of a hook.

    Attributes:
        hook: title of the hook.
        reason: the reason that the hook gave.
    """

    kind: Literal["stop"] = "stop"
    hook: str
    reason: str


DecisionLine = PlateauLine | AnnealingLine | EarlyStopLine
MetricsLine = StepsLine | EvaluationLine | DecisionLine | FindingLine | StopLine

EventKind = Literal[
    "started",  # training began at step 0
    "restored",  # … or resumed from a checkpoint
    "checkpoint_damaged",  # a checkpoint was skipped
    "preempted",  # SIGTERM arrived
    "host_lost",  # another process of the training was lost
    "diverged",  # the loss was not finite
    "rate_lowered",  # validation stalled
    "accepted",  # annealing accepted the evaluated state
    "rejected",  # … or restored the last accepted state
    "stopped_early",  # validation stopped improving
    "pruned",  # a search ended a trial that was worse than others
    "finished",  # all steps are done and the model is written
]


class EventLine(Frozen):
    """An event of a run.

    Attributes:
        time: Unix time.
        event: kind of the event.
        step: number of training steps that the run had done.
        message: description of the event.
        spans: see :class:`StepsLine`.
    """

    time: float
    event: EventKind
    step: int
    message: str
    spans: dict[str, float] = omitted({})


_FIGURES = {
    "train": ("loss", "accuracy", "learning_rate", "gradient_norm", "examples_per_second", "waiting"),
    "evaluation": ("loss", "accuracy"),
    "plateau": ("factor",),
    "annealing": ("energy", "temperature", "accepted"),
    "early_stop": ("value", "best", "stalled"),
    "stop": (),
}
# Each line is written with its kind as the first field.
_STEPS = re.compile(rb'{\s*"kind"\s*:\s*"train"')
_METRICS_LINE: TypeAdapter[MetricsLine] = TypeAdapter(Annotated[MetricsLine, Field(discriminator="kind")])
_EVENT_LINE = TypeAdapter(EventLine)


def rejected_steps(lines: Iterable[MetricsLine]) -> set[int]:
    """Return the steps at which annealing rejected the state."""
    return {line.step for line in lines if isinstance(line, AnnealingLine) and not line.accepted}


def figures_of(line: StepsLine | EvaluationLine | DecisionLine | StopLine) -> dict[str, float]:
    """Return the numbers of a line by the names of their series, such as ``train/loss``; none for a stop."""
    group = line.split if isinstance(line, EvaluationLine) else line.kind
    figures = {name: getattr(line, name) for name in _FIGURES[line.kind]}
    if isinstance(line, StepsLine | EvaluationLine) and line.measures:
        figures = {name: figure for name, figure in figures.items() if not math.isnan(figure)} | line.measures
    if isinstance(line, StepsLine):
        figures |= {f"gradient_norm/{block}": norm for block, norm in line.gradient_norms.items()}
    return {f"{group}/{name}": float(figure) for name, figure in figures.items()}


class MetricsLines:
    """The complete lines of a ``metrics.jsonl`` up to ``last_step``, without an unfinished last line.

    A long training has a million lines. So each iteration reads the file again, and keeps no line in memory.
    """

    def __init__(self, path: Path, last_step: float = math.inf) -> None:
        self._path, self._last_step = path, last_step

    def __iter__(self) -> Iterator[MetricsLine]:
        """Yield each line.

        Raises:
            StoreError: the file cannot be read.
            ArtifactError: a line is invalid.
        """
        return self._parsed(_whole_lines(self._path))

    def rare(self) -> list[EvaluationLine | DecisionLine | FindingLine | StopLine]:
        """Return all lines except those of training steps; raises the errors of :meth:`__iter__`."""
        others = (each for each in _whole_lines(self._path) if not _STEPS.match(each[1]))
        return [line for line in self._parsed(others) if not isinstance(line, StepsLine)]

    def steps(self, most: int) -> list[StepsLine]:
        """Return evenly spaced lines of training steps and the last one; raises the errors of :meth:`__iter__`.

        Args:
            most: the largest number of lines to return, without the last one.
        """
        count = sum(1 for _, text in _whole_lines(self._path) if _STEPS.match(text))
        every = max(1, -(-count // most))
        steps = (each for each in _whole_lines(self._path) if _STEPS.match(each[1]))
        some = (each for place, each in enumerate(steps) if place == count - 1 or place % every == 0)
        return [line for line in self._parsed(some) if isinstance(line, StepsLine)]

    def _parsed(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[MetricsLine]:
        parsed = _parsed(self._path, lines, _METRICS_LINE, "a line of metrics", "train the run again")
        return (line for line in parsed if line.step <= self._last_step)


def metrics_of(store: Store, folder: str) -> MetricsLines:
    """Return the lines of a finished training, verified with its completion record; see :func:`local_artifact`."""
    return MetricsLines(local_artifact(store, folder, "train", f"{folder}/{METRICS}"))


def read_events(path: Path) -> list[EventLine]:
    """Read an ``events.jsonl``; raises the errors of :meth:`MetricsLines.__iter__`."""
    return [*_parsed(path, _whole_lines(path), _EVENT_LINE, "an event", "delete the line")]


def _whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with explained("read", path), path.open("rb") as stream:
        for number, text in enumerate(stream, start=1):
            if text.endswith(b"\n"):
                yield number, text[:-1]


def _parsed(
    path: Path, lines: Iterable[tuple[int, bytes]], line_type: TypeAdapter[Line], noun: str, remedy: str
) -> Iterator[Line]:
    for number, text in lines:
        try:
            line = line_type.validate_json(text)
        except ValidationError as error:
            raise misfit(error, f"{path}:{number}", noun, remedy) from error
        yield line
