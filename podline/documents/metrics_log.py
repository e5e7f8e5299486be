"""``metrics.jsonl`` and ``events.jsonl``: the measurements and events of a run. Needs no TensorFlow.

``metrics.jsonl`` has one line for every stretch of steps, every evaluation and every decision, in the order in which
they came.
It has no gap and no repeat, whatever broke the run off: a checkpoint knows how many bytes the file had when it was
written (and their checksum), and a run that goes on from it cuts the file back to there.

``events.jsonl`` is never cut: it tells what happened, interruptions included.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from podline.errors import ArtifactError
from podline.frozen import Frozen
from podline.stopwatch import spans
from podline.store.contract import explained

METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"

# A line of a classifier has the one, a line of a pose network the other.
_ACCURACY: Any = Field(default=math.nan, exclude_if=math.isnan)
_MEASURES: Any = Field(default_factory=dict[str, float], exclude_if=operator.not_)
# Seconds that the process which wrote the line has measured up to then, by class; see podline.stopwatch.
_SPANS: Any = Field(default_factory=dict[str, float], exclude_if=operator.not_)


class StepsLine(Frozen):
    """A stretch of training steps.

    Attributes:
        step: how many steps the run has done at the end of the stretch.
        epoch: the same in passes over the data.
        loss: mean of ``losses``.
        accuracy: share of the stretch's examples, as augmented, that the model got right while it learned from them;
            no number, and not in the file, where there are no classes.
        learning_rate: of the stretch's last step.
        gradient_norm: Euclidean norm of the gradient of a step, summed over the replicas and not yet bounded by
            ``clip_norm``; mean over the stretch's steps.
        gradient_norms: the same of each block of layers.
        examples_per_second: over the stretch.
        waiting: share of the stretch's time in which the device waited for input, 0…1.
        seconds: time spent in training steps so far, over all starts of the run.
        time: Unix time at the end of the stretch.
        losses: the loss of each step, float32 as it came from the device; the last is step number ``step``.
        measures: of the stages of a pose network, in place of an accuracy: see
            :func:`podline.kinds.pose.stage_measures.stage_figures`, and ``<stage>/loss``.
        spans: class of time → seconds that the process has measured so far, besides training steps.
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
    """An evaluation during training, of every example of a split once, with the averaged weights if there are any.

    Attributes:
        step: how many training steps the weights had.
        epoch: the same in passes over the data.
        split: what was evaluated.
        examples: how many examples it has.
        loss: mean over the examples, without label smoothing and without the model's penalties.
        accuracy: top-1, over the examples.
        seconds: what the evaluation took.
        time: Unix time at its end.
        measures: likewise.
        spans: likewise.
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
    """The plateau's decision on the learning rate after an evaluation; the last one holds its whole state.

    Attributes:
        step: how many training steps the run had done.
        value: the metric that was looked at.
        best: the lowest so far.
        stalled: evaluations in a row, up to this one, that were no improvement.
        cooling: evaluations to come that are not counted as stalled.
        lowered: whether the rate was lowered.
        factor: what the schedule's rate is multiplied by from now on.
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
    """Annealing's decision on a state; the last one holds its whole state.

    The steps of a rejected state stay in the record: they were taken. ``against`` and ``state`` are what holds from now
    on.

    Attributes:
        step: how many training steps the run had done.
        number: of the decision, from 0; the draw comes from it and the seed.
        energy: of the state that was evaluated.
        rise: how much that is above the energy of the state that was accepted last; 0 if it is not.
        temperature: at this step.
        probability: exp(-rise / temperature).
        draw: in [0, 1); the state is accepted if it is below the probability.
        accepted: whether it was.
        state: the step whose state training goes on from: this one, or the one that was accepted last.
        against: the energy of that state.
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
    """Early stopping's decision; the last one holds its whole state.

    Attributes:
        step: how many training steps the run had done.
        value: the metric that was looked at.
        best: the lowest so far.
        state: the step of the state that had it.
        stalled: evaluations in a row, up to this one, that were no improvement.
        stopped: whether the run ends here, before its time.
        restored: whether the run is over, and has gone back to ``state``.
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
    "copied_stage",
    "vanishing_gradient",
    "exploding_gradient",
    "waiting_for_input",
    "slow",
]


class FindingLine(Frozen):
    """Something about a training that is not right, though it goes on; :mod:`podline.training.findings` has the rules.

    Attributes:
        step: how many steps the run had done when it was first seen, or when it was no longer there.
        finding: which rule found it.
        where: a layer, a block of layers, an answer of the model, the input.
        figures: what the rule went by, by name.
        message: what it is, in words.
        suggestion: what to do about it, in words.
        over: it is no longer there.
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


DecisionLine = PlateauLine | AnnealingLine | EarlyStopLine
MetricsLine = StepsLine | EvaluationLine | DecisionLine | FindingLine

EventKind = Literal[
    "started",  # training began at step 0
    "restored",  # … or went on from a checkpoint
    "checkpoint_damaged",  # a checkpoint was passed over
    "preempted",  # the machine asked the run to end
    "host_lost",  # another process of the training is gone
    "diverged",  # the loss was no finite number
    "rate_lowered",  # validation stalled
    "accepted",  # annealing keeps the state that was evaluated
    "rejected",  # … or goes back to the one that it accepted last
    "stopped_early",  # validation got no better for too long
    "pruned",  # a trial of a search was ended, since others were better
    "finished",  # all steps are done and the model is written
]


class EventLine(Frozen):
    """Something that happened to a run.

    Attributes:
        time: Unix time.
        event: what happened.
        step: how many steps the run had done.
        message: the same in words.
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
}
_METRICS_LINE: TypeAdapter[MetricsLine] = TypeAdapter(Annotated[MetricsLine, Field(discriminator="kind")])


def figures_of(line: StepsLine | EvaluationLine | DecisionLine) -> dict[str, float]:
    """Return the figures of a line as points of series, which are named like ``train/loss``."""
    group = line.split if isinstance(line, EvaluationLine) else line.kind
    figures = {name: getattr(line, name) for name in _FIGURES[line.kind]}
    if isinstance(line, StepsLine | EvaluationLine) and line.measures:
        figures = {name: figure for name, figure in figures.items() if name != "accuracy"} | line.measures
    if isinstance(line, StepsLine):
        figures |= {f"gradient_norm/{block}": norm for block, norm in line.gradient_norms.items()}
    return {f"{group}/{name}": float(figure) for name, figure in figures.items()}


def read_metrics(path: Path) -> list[MetricsLine]:
    """Read a ``metrics.jsonl``; leave out an unfinished last line of a killed process.

    Raises:
        StoreError: it cannot be read.
        ArtifactError: a line is not what it must be.
    """
    lines: list[MetricsLine] = []
    for number, text in _whole_lines(path):
        try:
            lines.append(_METRICS_LINE.validate_json(text))
        except ValueError as error:
            raise ArtifactError(f"{path}:{number} is not a line of metrics ({error}); train the run again") from error
    return lines


def read_events(path: Path) -> list[EventLine]:
    """Read an ``events.jsonl``, like :func:`read_metrics`."""
    lines: list[EventLine] = []
    for number, text in _whole_lines(path):
        try:
            lines.append(EventLine.model_validate_json(text))
        except ValueError as error:
            raise ArtifactError(f"{path}:{number} is not an event ({error}); delete the line") from error
    return lines


def _whole_lines(path: Path) -> list[tuple[int, bytes]]:
    with explained("read", path):
        *whole, _ = path.read_bytes().split(b"\n")
    return list(enumerate(whole, start=1))


class LogMark(Frozen):
    """The length of a log at a moment, and the sha256 of its content."""

    bytes: int
    sha256: str


class MetricsLog:
    """``metrics.jsonl`` while a run writes it.

    Every line is handed to the operating system at once; :meth:`mark` also waits for the disk.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hash = hashlib.sha256()
        self._bytes = 0
        with explained("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = path.open("ab")

    def require(self, mark: LogMark) -> None:
        """Make sure that the file still begins with what it held at the mark.

        Raises:
            ArtifactError: it does not.
        """
        with explained("read", self.path):
            content = self.path.read_bytes()[: mark.bytes]
        if len(content) < mark.bytes or hashlib.sha256(content).hexdigest() != mark.sha256:
            raise ArtifactError(f"{self.path} no longer begins with the {mark.bytes} bytes that it held then")

    def cut(self, mark: LogMark | None = None) -> None:
        """Go back to a mark, or to the beginning."""
        length = mark.bytes if mark else 0
        with explained("write", self.path):
            self._stream.truncate(length)
            self._stream.seek(length)
            self._hash = hashlib.sha256(self.path.read_bytes())
        self._bytes = length

    def write(self, line: MetricsLine) -> None:
        """Append a line."""
        data = (json.dumps(line.model_dump(mode="json"), allow_nan=False) + "\n").encode()
        with explained("write", self.path):
            self._stream.write(data)
            self._stream.flush()
        self._hash.update(data)
        self._bytes += len(data)

    def mark(self) -> LogMark:
        """Return the log's length and checksum once it is on the disk."""
        with explained("write", self.path):
            os.fsync(self._stream.fileno())
        return LogMark(bytes=self._bytes, sha256=self._hash.hexdigest())

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_error: object) -> None:
        with explained("write", self.path):
            self._stream.close()


class EventLog:
    """``events.jsonl`` while a run writes it; what a killed process left of a line is removed first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                content = path.read_bytes()
                os.truncate(path, content.rfind(b"\n") + 1)

    def write(self, event: EventKind, step: int, message: str) -> None:
        """Append an event; wait until it is on the disk."""
        line = EventLine(time=time.time(), event=event, step=step, message=message, spans=spans())
        with explained("write", self.path), self.path.open("ab") as stream:
            stream.write((line.model_dump_json() + "\n").encode())
            stream.flush()
            os.fsync(stream.fileno())

    def read(self) -> list[EventLine]:
        """Return all events so far."""
        return read_events(self.path) if self.path.exists() else []
