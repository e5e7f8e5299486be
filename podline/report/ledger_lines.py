"""Formats an entry of the ledger as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from podline.base.figures import count, duration, moment, percent, pflop, rate, size
from podline.base.plurals import plural
from podline.data.versions.version_changes import in_words as changes_in_words
from podline.documents.ledger_entry import CodeVersion, Data, Entry, Outcome, Training, WaitingTime
from podline.ledger.time_spent import in_words
from podline.recipes.measures import metric_text, shown
from podline.store.contract import Store

_WIDTH = 18
_WORST = 3


def lines_of(store: Store, entry: Entry) -> list[str]:
    """Return an entry as labelled lines; the entry's store is for the paths of run and report."""
    return [entry.name, *(f"{what:{_WIDTH}}{text}" for what, text in _facts(store, entry))]


def _facts(store: Store, entry: Entry) -> Iterator[tuple[str, str]]:
    attempt = f", attempt {entry.attempt}" if entry.attempt > 1 else ""
    yield "state", f"{entry.state} {moment(entry.ended)}, after {duration(entry.seconds)}{attempt}"
    yield "started", _started(entry)
    if entry.cause:
        yield "cause", f"{entry.error}: {entry.cause}"
    if entry.run:
        yield "run", store.where(f"runs/{entry.run}")
    if entry.outcome:
        yield from _outcome(entry.outcome)
    if entry.training:
        yield from _training(entry.training)
    yield "overridden", ", ".join(f"{path}={value}" for path, value in entry.overridden.items()) or "nothing"
    yield "code", code_in_words(entry.code)
    if entry.data:
        yield from _data(entry.data)
    where = entry.environment
    devices = " as ".join(filter(None, (where.devices, where.strategy)))
    machine = f"{where.cores} cores, {where.machine}, Python {where.python}, {where.platform}"
    yield "environment", ", ".join(filter(None, (devices, machine)))
    for stage, took in entry.stages.items():
        made = f", re-used: {duration(took.seconds_when_made)} when it was made" if took.reused else ""
        yield stage, f"{duration(took.seconds)}{made}"
    if entry.waiting.total:
        yield "waited", waiting_in_words(entry.waiting)
    if entry.spent:
        yield "time", in_words(entry.spent)
    for retry in entry.retries:
        yield "tried again", f"{retry.stage}, after {duration(retry.delay)}: {retry.error}: {retry.cause}"
    if entry.report:
        yield "page", store.where(entry.report)


def _outcome(outcome: Outcome) -> Iterator[tuple[str, str]]:
    for measure in shown(outcome.metrics):
        yield measure.label, metric_text(measure.name, outcome.metrics[measure.name])
    if worst := sorted(outcome.parts, key=lambda part: outcome.parts[part].value)[:_WORST]:
        yield "least good", ", ".join(f"{part} {percent(outcome.parts[part].value)}" for part in worst)
    yield "model", f"{count(outcome.parameters)} parameters, {size(outcome.model_bytes)}"


def _training(training: Training) -> Iterator[tuple[str, str]]:
    speed = (
        f"{plural(training.steps, 'step')}, {rate(training.examples_per_second)} examples/s, {pflop(training.pflop)}"
    )
    yield "training", f"{speed}, {percent(training.waiting_for_input)} of the time waiting for input"
    if training.annealing:
        told = training.annealing
        energies = f"{told.of} {told.final:.4f}, lowest {told.lowest:.4f}"
        yield "annealing", f"{told.rejected} of {told.decisions} states rejected, {energies}"


def code_in_words(code: CodeVersion) -> str:
    """Describe the version of the code: its commit, and how many files differ from it, or the package's version."""
    if not code.commit:
        return f"podline {code.version}, sources {code.sources[:12]}"
    changed = len(code.changes) + code.more_changes
    return f"commit {code.commit[:12]}, " + (f"{plural(changed, 'file')} changed since" if changed else "clean")


def _data(data: Data) -> Iterator[tuple[str, str]]:
    splits = ", ".join(f"{count(split.records)} {name}" for name, split in data.splits.items())
    yield "data", f"{data.dataset} {data.fingerprint}: {splits}"
    change = data.change
    if change is None:
        return
    words = change.unknown and f"not known: {change.unknown}"
    told = "; ".join(f"{split}: {changes_in_words(moved)}" for split, moved in change.splits.items())
    yield "data changed", f"{words or told or 'not'}, since {change.before}"


def _started(entry: Entry) -> str:
    schedule = f"the schedule of {entry.schedule}"
    if entry.started == "retry":
        return f"by hand: a retry of a run of {schedule}" if entry.schedule else "by hand: a retry"
    if entry.started == "event":
        return f"by an event, for {entry.schedule}"
    return f"by {schedule}" if entry.started == "schedule" else "by hand"


def waiting_in_words(waiting: WaitingTime) -> str:
    """Describe the waiting time per cause; empty if the run did not wait."""
    parts = {
        "to begin": waiting.start,
        "for its turn at the TPU": waiting.turn,
        "for the TPU": waiting.tpu,
        "for repairs of the TPU": waiting.repairs,
        "between attempts": waiting.retries,
    }
    return ", ".join(f"{duration(seconds)} {what}" for what, seconds in parts.items() if seconds)
