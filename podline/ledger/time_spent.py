"""Assigns every second of a run, from its due time to its end, to one class of work or loss.

Where Google's ML Goodput library has a class, its name is used. The time inside a training comes from the training's
``metrics.jsonl`` and ``events.jsonl``. Steps between the last checkpoint and a kill are missing there, so their time
counts as lost. The lines also contain measurements between steps (:mod:`podline.base.stopwatch`). Unmeasured time has
its own class.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from podline.base.figures import duration, percent
from podline.base.stopwatch import since
from podline.documents.ledger_entry import WaitingTime
from podline.documents.metrics_log import EvaluationLine, EventLine, MetricsLine, StepsLine

CLASSES: Mapping[str, str] = {
    "steps": "productive training steps",
    "input": "training that waits for input",
    "tracing": "tracing and rehearsal",
    "saving": "checkpoints, logs and export",
    "evaluation": "evaluation",
    "lost": "work that a failure or a kill lost",
    "hosts": "waiting for other hosts",
    "store": "waiting for the store",
    "starting": "starting and ending processes, and checking finished work",
    "converting": "conversion",
    "validating": "validation",
    "report": "promotion and report",
    "other": "stages of packages",
    "due": "from the due time to the start",
    "tpu": "waiting for the TPU: other runs, its start, its repairs",
    "retries": "delays before retries",
    "between": "between stages: Prefect and the ledger",
    "unattributed": "unmeasured time",
}
"""Class of time → its description, productive time first."""
LOSSES = ("lost", "input", "store", "hosts", "due", "tpu", "retries")
"""The classes of time in which the run made no progress."""
_OF_STAGES = {
    "convert": "converting",
    "validate": "validating",
    "train": "unattributed",  # a finished training whose log is damaged
    "evaluate": "evaluation",
    "promote": "report",
    "report": "report",
}
_TRAIN = "train"
_LEAST = 0.005
"""Smallest share of the time that :func:`in_words` mentions."""


class Attempt(NamedTuple):
    """One attempt of a stage.

    Attributes:
        stage: name of the stage.
        began: Unix time at which the attempt began.
        ended: Unix time at which the attempt ended.
        work: seconds of work as counted by the stage; 0 if an earlier result was reused, or the attempt failed.
        kept: whether the attempt's work was finished or saved.
        spans: class → seconds measured by the stage's process, see :mod:`podline.base.stopwatch`.
        around: class → seconds measured by the parent process while the stage ran, outside the stage's time.
    """

    stage: str
    began: float
    ended: float
    work: float
    kept: bool
    spans: Mapping[str, float] = {}
    around: Mapping[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end of the attempt."""
        return self.ended - self.began


def time_spent(
    seconds: float,
    waiting: WaitingTime,
    attempts: Iterable[Attempt],
    lines: Iterable[MetricsLine],
    events: Sequence[EventLine],
    around: Mapping[str, float],
) -> dict[str, float]:
    """Return class → seconds, for :data:`CLASSES`; the sum is the time from the due time to the end of the run.

    Args:
        seconds: duration of the run.
        waiting: waiting times of the run.
        attempts: attempts of the run's stages, in order.
        lines: metrics of the run's training, in order; iterated once.
        events: events of the run's training; if there are none, a finished training counts as unmeasured time.
        around: class → seconds that the process which starts the stages spent outside of them.
    """
    spent, log = defaultdict[str, float](float, around), _Log(lines)
    # Prefect's time includes the delays before retries.
    spent["between"] = max(0.0, spent["between"] - waiting.retries)
    for attempt in attempts:
        spent["starting" if attempt.kept else "lost"] -= sum(attempt.around.values())
        if attempt.stage == _TRAIN and any(_begins(event, attempt) for event in events):
            for kind, took in _of_training(attempt, log, events):
                spent[kind] += took
            continue
        work = min(attempt.work, attempt.seconds)
        stored = min(work, attempt.spans.get("store", 0.0))
        spent["starting" if attempt.kept else "lost"] += attempt.seconds - work
        spent["store"] += stored
        spent[_OF_STAGES.get(attempt.stage, "other")] += work - stored
    tpu = waiting.turn + waiting.tpu + waiting.repairs
    spent["starting"] -= tpu  # a stage waits for its TPU before its process starts
    spent["tpu"], spent["due"], spent["retries"] = tpu, waiting.start, waiting.retries
    spent = {kind: max(0.0, took) for kind, took in spent.items() if kind != "unattributed"}
    return _rounded(spent | {"unattributed": seconds + waiting.start - sum(spent.values())})


def time_of_training(lines: Iterable[MetricsLine], events: Sequence[EventLine]) -> dict[str, float]:
    """Return class → seconds of a training, summed over all starts of the training.

    After a kill, the time from the last line of the metrics log until the training resumed counts as lost.
    """
    begins = [place for place, event in enumerate(events) if event.event in ("started", "restored")]
    spent, log = defaultdict[str, float](float), _Log(lines)
    for place, after in itertools.pairwise([*begins, len(events)]):
        last = events[after - 1]
        kept = last.event in ("preempted", "finished")
        ended = last.time if kept or after == len(events) else events[after].time
        attempt = Attempt(_TRAIN, events[place].time, ended, 0.0, kept)
        for kind, took in _of_training(attempt, log, events[place:after]):
            spent[kind] += took
    return _rounded(spent)


class _Log:
    """The lines of a training's metrics log, read once and in order.

    Attributes:
        trained: seconds of all training steps read so far.
    """

    def __init__(self, lines: Iterable[MetricsLine]) -> None:
        self._lines, self._next, self.trained = iter(lines), list[MetricsLine](), 0.0

    def until(self, end: float) -> Iterator[MetricsLine]:
        """Yield the lines up to a Unix time; the next call continues with the next line."""
        for line in itertools.chain(self._next, self._lines):
            if line.time > end:
                self._next = [line]
                return
            yield line
        self._next = []


def _of_training(attempt: Attempt, log: _Log, events: Sequence[EventLine]) -> Iterator[tuple[str, float]]:
    """Yield (class, seconds) for each part of a training attempt, in order."""
    first = next(event for event in events if _begins(event, attempt))
    yield from _parts(first.time - attempt.began, first.spans, "starting")
    now, spans = first.time, first.spans
    for line in log.until(attempt.ended):
        if not isinstance(line, StepsLine | EvaluationLine):
            continue
        took = 0.0
        if isinstance(line, StepsLine):
            took, log.trained = line.seconds - log.trained, line.seconds
        if line.time < first.time:
            continue
        took = min(took, line.time - now)
        if isinstance(line, StepsLine):
            yield "input", took * line.waiting
            yield "steps", took * (1 - line.waiting)
        between = since(spans, line.spans)
        yield from _parts(line.time - now - took, between, "unattributed")
        now, spans = line.time, line.spans
    if not attempt.kept:
        yield "lost", attempt.ended - now
        return
    for event in events:
        if now <= event.time <= attempt.ended:
            yield from _parts(event.time - now, since(spans, event.spans), "unattributed")
            now, spans = event.time, event.spans
    yield from _parts(attempt.ended - now, since(spans, attempt.spans), "starting")


def _parts(seconds: float, spans: Mapping[str, float], rest: str) -> Iterator[tuple[str, float]]:
    """Yield (class, seconds) for the measured parts of a duration, and last for the remainder, with class ``rest``."""
    for kind, took in spans.items():
        part = min(took, seconds)
        yield kind, part
        seconds -= part
    yield rest, seconds


def _begins(event: EventLine, attempt: Attempt) -> bool:
    return event.event in ("started", "restored") and attempt.began <= event.time <= attempt.ended


def _rounded(spent: Mapping[str, float]) -> dict[str, float]:
    return {kind: round(spent[kind], 3) for kind in CLASSES if round(spent.get(kind, 0.0), 3) > 0}


def in_words(spent: Mapping[str, float]) -> str:
    """Describe the classes of time in one line, the largest share first."""
    total = sum(spent.values())
    parts = sorted(spent.items(), key=lambda part: -part[1])
    told = [f"{percent(took / total)} {CLASSES[kind]}" for kind, took in parts if took >= _LEAST * total]
    return f"{duration(total)}: {', '.join(told)}" if told else ""
