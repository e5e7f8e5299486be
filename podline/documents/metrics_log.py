"""``metrics.jsonl`` and ``events.jsonl``: the measurements and events of a run. Needs no TensorFlow.

``metrics.jsonl`` has one line for every stretch of steps, every evaluation and every decision, in order. A checkpoint
records the file's length and checksum. A resumed run truncates the file to this length, so an interruption leaves
neither a gap nor a repetition.

``events.jsonl`` records all events, including interruptions, and is never truncated.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from podline.base.errors import ArtifactError
from podline.base.frozen import Frozen
from podline.base.stopwatch import spans
from podline.documents.completion import local_artifact
from podline.store.contract import Store, explained

METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
_BLOCK = 1 << 20

# Classifiers report an accuracy, pose networks measures.
_ACCURACY: Any = Field(default=math.nan, exclude_if=math.isnan)
_MEASURES: Any = Field(default_factory=dict[str, float], exclude_if=operator.not_)
# Class of time → seconds that the writing process has measured so far; see podline.base.stopwatch.
_SPANS: Any = Field(default_factory=dict[str, float], exclude_if=operator.not_)


class StepsLine(Frozen):
    """A stretch of training steps.

    Attributes:
        step: number of steps that the run has done at the end of the stretch.
        epoch: number of passes over the data.
        loss: mean of ``losses``.
        accuracy: top-1 accuracy on the augmented examples of the stretch; NaN, and not in the file, without classes.
        learning_rate: learning rate of the stretch's last step.
        gradient_norm: Euclidean norm of the gradient, which is summed over the replicas, before ``clip_norm``; mean
            over the stretch's steps.
        gradient_norms: block of layers → the norm of its gradient.
        examples_per_second: mean over the stretch.
        waiting: share of the stretch's time that the device waited for input, 0…1.
        seconds: time spent in training steps so far, over all starts of the run.
        time: Unix time at the end of the stretch.
        losses: the loss of each step (float32 on the device); the last value belongs to step number ``step``.
        measures: for a pose network, instead of an accuracy: ``<stage>/loss`` and the metrics of
            :func:`podline.kinds.pose.stage_measures.stage_figures`.
        spans: class of time → seconds that this process has spent so far, outside of training steps.
    """

    kind: Literal["train"] = "train"
    step: int
    epoch: float
    loss: float
    accuracy: float = _ACCURACY
    learning_rate: float
    gradient_norm: float
    gradient_norms: dict[str, float]
    examples_per_second: float
    waiting: float
    seconds: float
    time: float
    losses: tuple[float, ...]
    measures: dict[str, float] = _MEASURES
    spans: dict[str, float] = _SPANS


class EvaluationLine(Frozen):
    """An evaluation during training, on every example of a split once, with the averaged weights if there are any.

    Attributes:
        step: number of training steps of the weights.
        epoch: number of passes over the data.
        split: the evaluated split.
        examples: number of evaluated examples.
        loss: mean over the examples, without label smoothing and without the model's penalties.
        accuracy: top-1 accuracy over the examples.
        seconds: duration of the evaluation.
        time: Unix time at the end of the evaluation.
        measures: see :class:`StepsLine`.
        spans: see :class:`StepsLine`.
    """

    kind: Literal["evaluation"] = "evaluation"
    step: int
    epoch: float
    split: str
    examples: int
    loss: float
    accuracy: float = _ACCURACY
    seconds: float
    time: float
    measures: dict[str, float] = _MEASURES
    spans: dict[str, float] = _SPANS


class PlateauLine(Frozen):
    """The decision of ReduceLROnPlateau after an evaluation; the last such line contains the schedule's whole state.

    Attributes:
        step: number of training steps that the run had done.
        value: the monitored metric (lower is better) in this evaluation.
        best: the lowest value so far.
        stalled: number of consecutive evaluations without an improvement, including this one.
        cooling: number of following evaluations that do not count as stalled.
        lowered: whether this decision lowered the learning rate.
        factor: the factor by which the schedule's learning rate is multiplied from now on.
        time: Unix time.
    """

    kind: Literal["plateau"] = "plateau"
    step: int
    value: float
    best: float
    stalled: int
    cooling: int
    lowered: bool
    factor: float
    time: float


class AnnealingLine(Frozen):
    """The decision of simulated annealing on a training state; the last such line contains the schedule's whole state.

    The log also keeps the lines of steps that led to a rejected state.

    Attributes:
        step: number of training steps that the run had done.
        number: number of the decision, from 0; number and seed determine ``draw``.
        energy: energy of the evaluated state.
        rise: increase over the energy of the last accepted state; 0 without an accepted state.
        temperature: temperature at this step.
        probability: exp(-rise / temperature).
        draw: random number in [0, 1); the state is accepted if ``draw`` is below ``probability``.
        accepted: whether the state was accepted.
        state: number of the step from whose state training continues: this step, or the last accepted one.
        against: the energy of the state from which training continues.
        time: Unix time.
    """

    kind: Literal["annealing"] = "annealing"
    step: int
    number: int
    energy: float
    rise: float
    temperature: float
    probability: float
    draw: float
    accepted: bool
    state: int
    against: float
    time: float


class EarlyStopLine(Frozen):
    """The decision of early stopping after an evaluation; the last such line contains its whole state.

    Attributes:
        step: number of training steps that the run had done.
        value: the monitored metric (lower is better) in this evaluation.
        best: the lowest value so far.
        state: number of the step whose state will be restored: the step with the best loss, or the latest step whose
            error is at most a standard error above the best.
        stalled: number of consecutive evaluations without an improvement, including this one.
        stopped: whether the run ends early at this step.
        restored: whether the run has ended and restored ``state``.
        time: Unix time.
    """

    kind: Literal["early_stop"] = "early_stop"
    step: int
    value: float
    best: float
    state: int
    stalled: int
    stopped: bool
    restored: bool
    time: float


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


class FindingLine(Frozen):
    """The begin or the end of a problem in a running training; :mod:`podline.training.findings` has the rules.

    Attributes:
        step: number of steps that the run had done when the problem was detected or had ended.
        finding: name of the rule.
        where: a layer, a block of layers, an output of the model, a split, or the input.
        figures: the values that the rule checked, by name.
        message: description of the problem.
        suggestion: suggested remedy.
        over: whether this line reports the end of the problem.
        time: Unix time.
    """

    kind: Literal["finding"] = "finding"
    step: int
    finding: FindingKind
    where: str
    figures: dict[str, float]
    message: str
    suggestion: str
    over: bool = False
    time: float


class StopLine(Frozen):
    """The early end of a run at the request of a hook.

    Attributes:
        step: number of training steps that the run had done.
        hook: title of the hook.
        reason: the reason that the hook gave.
        time: Unix time.
    """

    kind: Literal["stop"] = "stop"
    step: int
    hook: str
    reason: str
    time: float


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
    spans: dict[str, float] = _SPANS


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


def figures_of(line: StepsLine | EvaluationLine | DecisionLine | StopLine) -> dict[str, float]:
    """Return the numbers of a line by the names of their series, such as ``train/loss``."""
    group = line.split if isinstance(line, EvaluationLine) else line.kind
    figures = {name: getattr(line, name) for name in _FIGURES[line.kind]}
    if isinstance(line, StepsLine | EvaluationLine) and line.measures:
        figures = {name: figure for name, figure in figures.items() if not math.isnan(figure)} | line.measures
    if isinstance(line, StepsLine):
        figures |= {f"gradient_norm/{block}": norm for block, norm in line.gradient_norms.items()}
    return {f"{group}/{name}": float(figure) for name, figure in figures.items()}


class MetricsLines:
    """The complete lines of a ``metrics.jsonl``; an unfinished last line of a killed process is skipped.

    A long training has a million lines. So each iteration reads the file again, and keeps no line in memory.
    """

    def __init__(self, path: Path, last_step: float = math.inf) -> None:
        """Store the path; iterating reads the file.

        Args:
            path: the file.
            last_step: lines with a larger step are skipped.
        """
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
        for number, text in lines:
            try:
                line = _METRICS_LINE.validate_json(text)
            except ValueError as error:
                message = f"{self._path}:{number} is not a line of metrics ({error}); train the run again"
                raise ArtifactError(message) from error
            if line.step <= self._last_step:
                yield line


def metrics_of(store: Store, folder: str) -> MetricsLines:
    """Return the lines of a finished training, verified with its completion record; see :func:`local_artifact`."""
    return MetricsLines(local_artifact(store, folder, "train", f"{folder}/{METRICS}"))


def read_events(path: Path) -> list[EventLine]:
    """Read an ``events.jsonl``; raises the errors of :meth:`MetricsLines.__iter__`."""
    lines: list[EventLine] = []
    for number, text in _whole_lines(path):
        try:
            lines.append(EventLine.model_validate_json(text))
        except ValueError as error:
            raise ArtifactError(f"{path}:{number} is not an event ({error}); delete the line") from error
    return lines


def _whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with explained("read", path), path.open("rb") as stream:
        for number, text in enumerate(stream, start=1):
            if text.endswith(b"\n"):
                yield number, text[:-1]


class LogMark(Frozen):
    """The length of ``metrics.jsonl`` at the time of a checkpoint, and the sha256 of its content."""

    bytes: int
    sha256: str


def _hash_of(path: Path, length: int) -> Any:
    """Return the unfinished sha256 of the first ``length`` bytes of a file; the caller can add further bytes."""
    sha256 = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(min(length, _BLOCK)):
            sha256.update(block)
            length -= len(block)
    return sha256


class MetricsLog:
    """Appends lines to a run's ``metrics.jsonl``.

    :meth:`write` flushes every line to the operating system; :meth:`mark` also waits for the disk (fsync).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hash = hashlib.sha256()
        self._bytes = 0
        with explained("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = path.open("ab")

    def require(self, mark: LogMark) -> None:
        """Check that the first ``mark.bytes`` bytes still have the sha256 of ``mark``; :meth:`cut` truncates there.

        Raises:
            ArtifactError: the content has changed.
        """
        with explained("read", self.path):
            found, length = _hash_of(self.path, mark.bytes), self.path.stat().st_size
        if length < mark.bytes or found.hexdigest() != mark.sha256:
            raise ArtifactError(
                f"{self.path} no longer begins with the {mark.bytes} bytes that it had at the time of the checkpoint"
            )
        self._hash, self._bytes = found, mark.bytes

    def cut(self, *, checked: bool) -> None:
        """Truncate the log.

        Args:
            checked: truncate to the length that :meth:`require` has just checked; else remove all lines.
        """
        if not checked:
            self._hash, self._bytes = hashlib.sha256(), 0
        with explained("write", self.path):
            self._stream.truncate(self._bytes)
            self._stream.seek(self._bytes)

    def write(self, line: MetricsLine) -> None:
        """Append a line."""
        data = (json.dumps(line.model_dump(mode="json"), allow_nan=False) + "\n").encode()
        with explained("write", self.path):
            self._stream.write(data)
            self._stream.flush()
        self._hash.update(data)
        self._bytes += len(data)

    def mark(self) -> LogMark:
        """Wait until all lines are on the disk; return the log's length and checksum."""
        with explained("write", self.path):
            os.fsync(self._stream.fileno())
        return LogMark(bytes=self._bytes, sha256=self._hash.hexdigest())

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_error: object) -> None:
        with explained("write", self.path):
            self._stream.close()


class EventLog:
    """Appends events to a run's ``events.jsonl``; opening removes an unfinished last line of a killed process."""

    def __init__(self, path: Path, before: Callable[[], None] | None = None) -> None:
        """Open the log.

        Args:
            path: the file.
            before: called before each line is written; if it raises, the line is not written.
        """
        self.path, self._before = path, before
        with explained("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                content = path.read_bytes()
                os.truncate(path, content.rfind(b"\n") + 1)

    def write(self, event: EventKind, step: int, message: str) -> None:
        """Append an event, and wait until the line is on the disk."""
        if self._before:
            self._before()
        line = EventLine(time=time.time(), event=event, step=step, message=message, spans=spans())
        with explained("write", self.path), self.path.open("ab") as stream:
            stream.write((line.model_dump_json() + "\n").encode())
            stream.flush()
            os.fsync(stream.fileno())

    def read(self) -> list[EventLine]:
        """Return all events so far."""
        return read_events(self.path) if self.path.exists() else []
