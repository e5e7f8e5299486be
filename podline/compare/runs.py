"""Compares several runs of the ledger with the first run: the different inputs, then the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from podline.base import figures
from podline.base.errors import PodlineError, SettingsError, StoreError, one_line
from podline.base.frozen import Frozen
from podline.base.progress import silent
from podline.compare.comparison import Comparison, compare, shared_unpaired
from podline.compare.known import Evaluated, evaluated
from podline.compare.settings import AREAS, NONE, NamedDifference, differing
from podline.data.versions.version_changes import change_between
from podline.documents.any_evaluation import EVALUATION
from podline.documents.ledger_entry import Entry, Outcome
from podline.recipes import measures
from podline.recipes.kind_table import facts_by_measure
from podline.recipes.measures import shown
from podline.store.contract import Store

_CELL = 44  # width of a cell in characters: rows of two runs fit a terminal


class RunsComparison(Frozen):
    """A comparison of several runs.

    Attributes:
        names: names of the ledger entries.
        runs: names of the runs.
        differences: different inputs of the runs, by area.
        results: figure → the value of each run, as text.
        verdicts: the comparison with the first run, for each other run that has a result.
        words: the verdicts as text, at least one line for each run but the first.
    """

    names: tuple[str, ...]
    runs: tuple[str, ...]
    differences: tuple[NamedDifference, ...]
    results: dict[str, tuple[str, ...]]
    verdicts: tuple[Comparison, ...]
    words: tuple[str, ...]


def compare_runs(store: Store, entries: Sequence[Entry]) -> RunsComparison:
    """Compare two or more runs; a run that cannot be compared has its reason in the words.

    Args:
        store: the store with their folders, if they still exist.
        entries: at least two entries.
    """
    first, verdicts, words = entries[0], list[Comparison](), list[str]()
    for entry in entries[1:]:
        try:
            verdicts.append(of_entries(store, first, entry))
            words += verdicts[-1].lines()
        except (StoreError, SettingsError) as error:
            words.append(f"{entry.run or entry.name}: {error}")
    return RunsComparison(
        names=tuple(entry.name for entry in entries),
        runs=tuple(entry.run for entry in entries),
        differences=tuple(differing(entries, partial(change_between, store))),
        results=dict(_results(entries)),
        verdicts=tuple(verdicts),
        words=tuple(words),
    )


def of_entries(store: Store, before: Entry, after: Entry) -> Comparison:
    """Compare the runs of two entries; by the figures in the entries if the evaluations are gone.

    Raises:
        StoreError: a run had no evaluation, or the runs have different main metrics.
        SettingsError: the package with the runs' kind of task is not installed.
    """
    for entry, which in ((before, "the first run"), (after, "this run")):
        if entry.outcome is None:
            raise StoreError(f"cannot compare results: {which} has no evaluation; run `podline evaluate`")
    try:
        return compare(store, _evaluated(store, before), _evaluated(store, after), silent()).comparison
    except PodlineError as error:
        return _by_entries(store, before, after, one_line(error))


def _evaluated(store: Store, entry: Entry) -> Evaluated:
    name = f"runs/{entry.run}/{EVALUATION}"
    if not (entry.outcome and store.exists(name) and store.sha256(name) == entry.outcome.evaluation_sha256):
        raise StoreError(f"{store.where(name)} is no longer the evaluation of {entry.name}")
    return evaluated(store, entry.run)


def _by_entries(store: Store, before: Entry, after: Entry, why: str) -> Comparison:
    then, now = before.outcome, after.outcome
    if then is None or now is None or then.measure != now.measure:
        raise StoreError(why)
    kind, examples = facts_by_measure(now.measure).name, min(then.examples, now.examples)
    return Comparison(
        run=after.run,
        against=before.run,
        known=(before.run,),
        measure=now.measure,
        differences=shared_unpaired([then.metrics], now.metrics, examples, kind, len(then.parts)),
        differs=tuple(differing([before, after], partial(change_between, store))),
        why_unpaired=why,
    )


def lines(comparison: RunsComparison) -> list[str]:
    """Return a comparison as lines of text; the middle of a long value, such as a cause of failure, is left out."""
    parts = []
    for area in AREAS:
        rows = [row for row in comparison.differences if row.area == area]
        if rows:
            parts += [area, *(f"  {row.name}: {' → '.join(row.values)}" for row in rows), ""]
    if not parts:
        parts = ["settings, data, code and environment are the same", ""]
    width = max(map(len, comparison.results), default=0)
    results = {name: [_shortened(value) for value in values] for name, values in comparison.results.items()}
    columns = [max(map(len, column)) for column in zip(*results.values(), strict=True)]
    for name, values in results.items():
        cells = "  ".join(f"{value:{size}}" for value, size in zip(values, columns, strict=True))
        parts.append(f"{name:{width}}  {cells}".rstrip())
    return [*parts, "", *comparison.words]


def _shortened(text: str) -> str:
    """Cut the middle of a long text, since the end of a run's name distinguishes it."""
    half = (_CELL - 1) // 2
    return text if len(text) <= _CELL else f"{text[:half]}…{text[-half:]}"


def _results(entries: Sequence[Entry]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield rows of figures: the name, and each run's value."""
    yield "run", tuple(entry.run or NONE for entry in entries)
    yield "ended", tuple(figures.moment(entry.ended) for entry in entries)
    yield "state", tuple(f"{entry.state}{f': {entry.cause}' if entry.cause else ''}" for entry in entries)
    outcomes = [entry.outcome for entry in entries]
    for measure in shown(dict.fromkeys(name for outcome in outcomes if outcome for name in outcome.metrics)):
        yield measure.label, tuple(_metric(outcome, measure.name) for outcome in outcomes)
    yield "parameters", tuple(figures.count(outcome.parameters) if outcome else NONE for outcome in outcomes)
    yield "model", tuple(figures.size(outcome.model_bytes) if outcome else NONE for outcome in outcomes)
    trainings = [entry.training for entry in entries]
    yield "training took", tuple(figures.duration(each.seconds) if each else NONE for each in trainings)
    yield "training cost", tuple(figures.pflop(each.pflop) if each else NONE for each in trainings)
    yield "examples/s", tuple(figures.rate(each.examples_per_second) if each else NONE for each in trainings)
    yield "waiting for input", tuple(figures.percent(each.waiting_for_input) if each else NONE for each in trainings)
    yield "waited", tuple(figures.duration(entry.waiting.total) for entry in entries)


def _metric(outcome: Outcome | None, name: str) -> str:
    if outcome is None or name not in outcome.metrics:
        return NONE
    return measures.metric_text(name, outcome.metrics[name])
