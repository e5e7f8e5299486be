"""Attributes every second of a run, from the moment at which it was due until its end, to one class of work or loss.

The names follow Google's ML Goodput library where that has one. What happened inside a training is read from its
``metrics.jsonl`` and ``events.jsonl``: steps after the last checkpoint before a kill are not in there any more, so that
time is what was lost. What processes measured between the steps (:mod:`podline.stopwatch`) is in the same lines; what
no clock measured is a class of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from podline.documents.ledger_entry import Waiting
from podline.documents.metrics_log import EvaluationLine, EventLine, MetricsLine, StepsLine
from podline.figures import duration, percent
from podline.ledger.slowness import Loss
from podline.plurals import plural
from podline.stopwatch import since

CLASSES: Mapping[str, str] = {
    "steps": "productive training steps",
    "input": "training that waits for input",
    "tracing": "tracing and rehearsal",
    "saving": "checkpoints, logs and export",
    "evaluation": "evaluation",
    "lost": "work that a failure or a kill lost",
    "hosts": "waiting for other hosts",
    "store": "waiting for the store",
    "starting": "processes that start and end, and work that is found done",
    "converting": "conversion",
    "validating": "validation",
    "report": "promotion and report",
    "other": "stages of packages",
    "due": "from the moment at which it was due to its beginning",
    "tpu": "the TPU: its turn, its start, its repairs",
    "retries": "delays before retries",
    "between": "between stages: Prefect and the ledger",
    "unattributed": "what no clock measured",
}
"""Class of time → in words, the productive one first."""
LOSSES = ("lost", "input", "store", "hosts", "due", "tpu", "retries")
"""The classes in which nothing is done that a run is for."""
_OF_STAGES = {
    "convert": "converting",
    "validate": "validating",
    "evaluate": "evaluation",
    "promote": "report",
    "report": "report",
}
_TRAIN = "train"
_LEAST = 0.005
"""A share of less is not in the sentence."""


class Attempt(NamedTuple):
    """One attempt of a stage.

    Attributes:
        stage: its name.
        began: Unix time.
        ended: Unix time.
        work: seconds of work, as the stage counted them; 0 where it was found done, or did not end well.
        kept: whether nothing of it was lost: it is done, or what it had done was saved.
        spans: class → seconds that the process of the stage measured, see :mod:`podline.stopwatch`.
        around: the same of the process that waited for it; not in the time of the stage.
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
        """From its beginning to its end."""
        return self.ended - self.began


def time_spent(
    seconds: float,
    waiting: Waiting,
    attempts: Iterable[Attempt],
    lines: Sequence[MetricsLine],
    events: Sequence[EventLine],
    around: Mapping[str, float],
) -> dict[str, float]:
    """Return class → seconds, of :data:`CLASSES`; the sum is all of the time.

    Args:
        seconds: from the run's beginning to its end.
        waiting: of the run.
        attempts: of its stages, in order.
        lines: of the run's training.
        events: of the run's training.
        around: class → seconds that the run's own process measured, its stages' processes aside.
    """
    spent = defaultdict[str, float](float, around)
    # Prefect is also what a delay is waited for in.
    spent["between"] = max(0.0, spent["between"] - waiting.retries)
    for attempt in attempts:
        spent["starting" if attempt.kept else "lost"] -= sum(attempt.around.values())
        if attempt.stage == _TRAIN and any(_begins(event, attempt) for event in events):
            for kind, took in _of_training(attempt, lines, events):
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


def time_of_training(lines: Sequence[MetricsLine], events: Sequence[EventLine]) -> dict[str, float]:
    """Return class → seconds of a training over all its starts.

    After a kill, what was lost has no line any more: it counts together with the time until training went on.
    """
    begins = [place for place, event in enumerate(events) if event.event in ("started", "restored")]
    spent = defaultdict[str, float](float)
    for place, after in pairwise([*begins, len(events)]):
        last = events[after - 1]
        kept = last.event in ("preempted", "finished")
        ended = last.time if kept or after == len(events) else events[after].time
        attempt = Attempt(_TRAIN, events[place].time, ended, 0.0, kept)
        for kind, took in _of_training(attempt, lines, events[place:after]):
            spent[kind] += took
    return _rounded(spent)


def _of_training(
    attempt: Attempt, lines: Sequence[MetricsLine], events: Sequence[EventLine]
) -> Iterator[tuple[str, float]]:
    """Yield what an attempt of the training took, part by part from its beginning to its end."""
    first = next(event for event in events if _begins(event, attempt))
    yield from _parts(first.time - attempt.began, first.spans, "starting")
    now, spans, before = first.time, first.spans, 0.0
    for line in lines:
        if not isinstance(line, StepsLine | EvaluationLine):
            continue
        took = 0.0
        if isinstance(line, StepsLine):
            took, before = line.seconds - before, line.seconds
        if not first.time <= line.time <= attempt.ended:
            continue
        took = min(took, line.time - now)
        if isinstance(line, StepsLine):
            yield "input", took * line.waiting
            yield "steps", took * (1 - line.waiting)
        between = since(spans, line.spans)
        if isinstance(line, EvaluationLine) and not line.spans:  # before Podline measured more
            between = {"evaluation": line.seconds}
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
    """Yield what was measured of a time, and the class of the rest."""
    for kind, took in spans.items():
        part = min(took, seconds)
        yield kind, part
        seconds -= part
    yield rest, seconds


def _begins(event: EventLine, attempt: Attempt) -> bool:
    return event.event in ("started", "restored") and attempt.began <= event.time <= attempt.ended


def _rounded(spent: Mapping[str, float]) -> dict[str, float]:
    return {kind: round(spent[kind], 3) for kind in CLASSES if round(spent.get(kind, 0.0), 3) > 0}


def loss_in_words(loss: Loss) -> str:
    """Return what took more time than usual, in a line."""
    usual = f"usually {duration(loss.usual)}" if loss.usual else "none"
    return f"{CLASSES[loss.kind]}: {duration(loss.seconds)}, {usual} in the last {plural(loss.nights, 'night')}"


def in_words(spent: Mapping[str, float]) -> str:
    """Return where the time went, in a line; the largest parts first."""
    total = sum(spent.values())
    parts = sorted(spent.items(), key=lambda part: -part[1])
    told = [f"{percent(took / total)} {CLASSES[kind]}" for kind, took in parts if took >= _LEAST * total]
    return f"{duration(total)}: {', '.join(told)}" if told else ""
