"""Compares runs of the ledger: their differences in settings and data, then their results with noise.

All runs are compared with the first one. If two runs were evaluated on the same examples, or share some, the difference
of the main metric is tested on these examples. Otherwise the comparison says so, and only shows their intervals.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from functools import partial

from podline import figures
from podline.datasets.census import change_between
from podline.documents.any_evaluation import EVALUATION
from podline.documents.ledger_entry import Entry, Outcome
from podline.documents.promotion import read_promotion
from podline.errors import PodlineError, StoreError, one_line
from podline.evaluation import differences
from podline.evaluation.differences import CHANCES, Difference
from podline.figures import change_bound, change_text
from podline.frozen import Frozen
from podline.inventory.catalogue import training_of
from podline.ledger.differences import AREAS, NONE, NamedDifference, differing
from podline.measures import measure_named, shown
from podline.plurals import plural
from podline.progress import silent
from podline.reporting.pairs import Judged, MovedPart, Pair, moved_parts, paired
from podline.reporting.seed_spread import SeedSpread, recent, spread_among
from podline.reporting.shared_examples import SharedExamples, shared_examples
from podline.store.contract import Store

_CELL = 44  # width of a cell in characters: rows of two runs fit a terminal


class AgainstFirst(Frozen):
    """The comparison of a run with the first one.

    Attributes:
        run: name of its entry.
        difference: of the main metric; None if a run has no evaluation, or another metric.
        why_unpaired: reason for no test on the same examples; empty if it was tested.
        examples: the shared examples if the data differ; empty for all.
        parts: classes or joints that changed beyond noise, largest first; only with a test on the same examples.
        words: a summary in one sentence.
    """

    run: str
    difference: Difference | None
    why_unpaired: str = ""
    examples: str = ""
    parts: tuple[MovedPart, ...] = ()
    words: str


class RunsComparison(Frozen):
    """A comparison of several runs.

    Attributes:
        names: names of the entries.
        runs: names of the runs.
        differences: differences between the runs, by area.
        results: figure → the value of each run, as text.
        verdicts: the comparison of each run but the first.
    """

    names: tuple[str, ...]
    runs: tuple[str, ...]
    differences: tuple[NamedDifference, ...]
    results: dict[str, tuple[str, ...]]
    verdicts: tuple[AgainstFirst, ...]


def compare(store: Store, entries: Sequence[Entry]) -> RunsComparison:
    """Compare two or more runs.

    Args:
        store: the store with their folders, if they still exist.
        entries: at least two entries.

    Raises:
        ArtifactError: a file of a run is damaged.
    """
    first = entries[0]
    return RunsComparison(
        names=tuple(entry.name for entry in entries),
        runs=tuple(entry.run for entry in entries),
        differences=tuple(differing(entries, partial(change_between, store))),
        results=dict(_results(entries)),
        verdicts=tuple(_verdict(store, first, entry) for entry in entries[1:]),
    )


def lines(comparison: RunsComparison) -> list[str]:
    """Return a comparison as lines of text; a long cause of failure is shortened."""
    parts = []
    for area in AREAS:
        rows = [row for row in comparison.differences if row.area == area]
        if rows:
            parts += [area, *(f"  {row.name}: {' → '.join(row.values)}" for row in rows), ""]
    if not parts:
        parts = ["settings, data, code and environment are the same", ""]
    width = max(map(len, comparison.results), default=0)
    results = {
        name: [textwrap.shorten(value, _CELL, placeholder="…") for value in values]
        for name, values in comparison.results.items()
    }
    columns = [max(map(len, column)) for column in zip(*results.values(), strict=True)]
    for name, values in results.items():
        cells = "  ".join(f"{value:{size}}" for value, size in zip(values, columns, strict=True))
        parts.append(f"{name:{width}}  {cells}".rstrip())
    return [*parts, "", *(verdict.words for verdict in comparison.verdicts)]


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
    return figures.metric_text(name, outcome.metrics[name])


def _verdict(store: Store, first: Entry, entry: Entry) -> AgainstFirst:
    before, after = first.outcome, entry.outcome
    name = entry.run or entry.name
    if before is None or after is None or before.measure != after.measure:
        return AgainstFirst(run=entry.name, difference=None, words=f"{name}: {_why_not(before, after)}")
    spread, examples, why = _spread(store, first, entry), "", ""
    try:
        pair, examples = _pair(store, first, entry)
        difference, parts = _differences(pair, first, entry, spread)
    except PodlineError as error:
        seeds = spread.of(after.measure, before.main)
        difference = differences.unpaired(before.main, after.main, min(before.examples, after.examples), seeds)
        parts, why = (), one_line(error)
    words = "; ".join(filter(None, (f"{name}: {in_words(after.measure, difference)}", examples, why)))
    for chance, what in (("beyond", "Beyond noise each"), ("seed", "Perhaps moved by the seed")):
        moved = ", ".join(f"{part.name} {change_text('top1', part.change)}" for part in parts if part.chance == chance)
        words += f". {what}: {moved}" if moved else ""
    return AgainstFirst(
        run=entry.name, difference=difference, why_unpaired=why, examples=examples, parts=parts, words=words
    )


def in_words(measure: str, difference: Difference) -> str:
    """Describe a difference: ``accuracy is better by 0.3 points [−0.1, +0.7]: could be noise (p = 0.14, …)``."""
    way = "is better by" if difference.value > 0 else "is worse by"
    by = change_text(measure, abs(difference.value)).removeprefix("+")
    how = f"{way} {by}" if difference.value else "is the same"
    interval = f"[{change_bound(measure, difference.low)}, {change_bound(measure, difference.high)}]"
    counts = "" if difference.gained is None else f"; {difference.gained} more right, {difference.lost} more wrong"
    chance = f"{CHANCES[difference.chance]} (p = {difference.p_value:.2g}, {difference.method}{counts})"
    return f"{measure_named(measure).label} {how} {interval}: {chance}"


def _why_not(before: Outcome | None, after: Outcome | None) -> str:
    if before is None or after is None:
        which = " and ".join(
            words for words, outcome in (("the first run", before), ("this run", after)) if outcome is None
        )
        return f"there is no result to compare: {which} has no evaluation"
    return f"there is no result to compare: {before.measure} vs {after.measure}"


def _spread(store: Store, first: Entry, entry: Entry) -> SeedSpread:
    """Return the spread between seeds of the first run's recipe, from the ledger."""
    if first.outcome is None:
        return SeedSpread()
    entries = (each for each in recent(store, first.recipe) if each.run != entry.run)
    return spread_among(entries, first, first.outcome.measure)


def _pair(store: Store, first: Entry, entry: Entry) -> tuple[Pair, str]:
    """Pair two runs on their shared examples, and describe these; the description is empty if all are shared.

    Raises:
        StoreError: they share no examples, or the answers of a run are missing.
    """
    before, after = _judged(store, first), _judged(store, entry)
    try:
        return paired(store, before, after), ""
    except StoreError:
        if before.dataset != after.dataset or before.fingerprint == after.fingerprint:
            raise
        then, now = (training_of(store, each.run) for each in (first, entry))
        shared = shared_examples(store, then, now, after.split, silent())
        if not len(shared.after):
            raise
        sides = before._replace(places=shared.before), after._replace(places=shared.after)
        return paired(store, *sides), _examples(store, first, entry, shared)


def _examples(store: Store, first: Entry, entry: Entry, shared: SharedExamples) -> str:
    """Describe the examples that two runs share, and the figures on new examples if a promotion has them."""
    words = f"on {plural(len(shared.after), 'test example')} that both data sets have, {len(shared.fresh):,} are new"
    promotion = read_promotion(store, f"runs/{entry.run}")
    compared = promotion.compared if promotion and promotion.against == first.run else None
    if compared is None or not compared.fresh_before:
        return words
    return f"{words}: {compared.measure} {compared.fresh_after} vs {compared.fresh_before} on these"


def _differences(
    pair: Pair, first: Entry, entry: Entry, spread: SeedSpread
) -> tuple[Difference, tuple[MovedPart, ...]]:
    """Return the difference on the same examples, and the parts that changed."""
    outcome = _outcome(entry)
    seeds = {name: spread.of(name, metric) for name, metric in _outcome(first).metrics.items()}
    moved = [part for part in moved_parts(pair, list(outcome.parts), spread) if part.chance != "noise"]
    return pair.differences(seeds)[outcome.measure], tuple(sorted(moved, key=lambda part: -abs(part.change)))


def _outcome(entry: Entry) -> Outcome:
    if entry.outcome is None:
        raise StoreError(f"{entry.name} was not judged")
    return entry.outcome


def _judged(store: Store, entry: Entry) -> Judged:
    """Return the evaluation of an entry if the run's folder still has it."""
    outcome, folder = _outcome(entry), f"runs/{entry.run}"
    name = f"{folder}/{EVALUATION}"
    if not store.exists(name) or store.sha256(name) != outcome.evaluation_sha256:
        raise StoreError(f"{store.where(name)} is no longer the evaluation of {entry.name}")
    if entry.data is None:
        raise StoreError(f"{entry.name} does not name its data")
    return Judged(folder, outcome.measure, entry.data.dataset, entry.data.fingerprint, outcome.split)
