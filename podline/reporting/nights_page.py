"""``index.html`` in a store's root: every night of the ledger, the newest first. Needs no pandas and no matplotlib.

Two who write it at once do no harm: whoever finds, after writing, that an entry came meanwhile, writes it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from podline import champions, ledger
from podline.evaluation.noise import unpaired
from podline.ledger_entry import Entry
from podline.reporting import figures, quoted
from podline.reporting.over_nights import Point, line
from podline.reporting.standing import word_of
from podline.reporting.templates import TEMPLATES, unbroken
from podline.stages import STAGES
from podline.storage import BUCKET_SCHEME, Store

INDEX = "index.html"
MOST_ROWS = 1_000
"""So many nights are in the table; the charts show all."""

# Characters of what ended a night before its time; the ledger has all of it.
_MOST_CAUSE = 160
# Whoever writes the index reads the ledger again so many times at most: nights do not end faster than that.
_MOST_ROUNDS = 5


class Row(NamedTuple):
    """A night in the table: finished texts."""

    ended: str
    state: str
    run: str
    report: str
    champion: bool
    figure: str
    change: str
    word: str
    arrow: str
    cause: str
    took: str
    reused: str
    data: str


def write_index(store: Store) -> str:
    """Writes the index into the store's root; returns its name.

    Raises:
        StoreError: the ledger cannot be read, or the index cannot be written.
        ArtifactError: an entry of the ledger is damaged.
    """
    for _ in range(_MOST_ROUNDS):
        wanted = ledger.names(store)
        page = index_page(store.uri, ledger.entries(store, reversed(wanted)), _champions(store))
        store.publish_bytes(INDEX, page.encode(), replace=True)
        if ledger.names(store) == wanted:
            break
    return INDEX


def page_elsewhere(store: Store) -> str:
    """The same page for a place outside the store: reports are addressed in full.

    Raises:
        StoreError: the ledger cannot be read.
        ArtifactError: an entry of the ledger is damaged.
    """
    entries = ledger.entries(store, reversed(ledger.names(store)))
    return index_page(store.uri, entries, _champions(store), base=_base(store.uri))


def _champions(store: Store) -> dict[str, str]:
    """Recipe → the run whose model is its champion."""
    found = {recipe: champions.champion(store, recipe) for recipe in champions.recipes(store)}
    return {recipe: crowned.run for recipe, crowned in found.items() if crowned}


def _base(uri: str) -> str:
    """What a browser finds the store's root by."""
    if uri.startswith(BUCKET_SCHEME):
        # Opens for whoever is logged in to Google Cloud and may read the bucket.
        return f"https://storage.cloud.google.com/{quote(uri.removeprefix(BUCKET_SCHEME))}/"
    return f"{Path(uri).as_uri()}/"


def index_page(where: str, entries: Iterable[Entry], crowned: Mapping[str, str] | None = None, base: str = "") -> str:
    """The page.

    Args:
        where: the store, as a user would write it.
        entries: the oldest first; each is looked at once and let go.
        crowned: recipe → run of its champion.
        base: what a name in the store becomes an address with; empty for a page in the store's root.
    """
    rows: deque[Row] = deque(maxlen=MOST_ROWS)
    recipes: dict[str, _Course] = {}
    count, last = 0, None
    for entry in entries:
        course = recipes.setdefault(entry.recipe, _Course())
        rows.append(_row(entry, course.before, (crowned or {}).get(entry.recipe) == entry.run, base))
        course.add(entry)
        count, last = count + 1, entry
    newest_first = sorted(recipes.items(), key=lambda item: -item[1].ended)
    page = TEMPLATES.get_template("nights.html").render(
        where=where,
        count=figures.count(count),
        sentence=_sentence(last),
        recipes=[{"name": name, "charts": charts} for name, course in newest_first if (charts := course.charts())],
        rows=[*rows][::-1],
        older=figures.count(count - len(rows)) if count > len(rows) else "",
    )
    return unbroken(page)


class _Course:
    """What is kept of a recipe's nights: a few numbers of each."""

    def __init__(self) -> None:
        self.ended = 0.0
        self.before: Entry | None = None
        self._measure = ""
        self._figures: list[Point] = []
        self._speed: list[Point] = []
        self._waiting: list[Point] = []
        self._records: list[Point] = []

    def add(self, entry: Entry) -> None:
        """One more night."""
        self.ended = entry.ended
        self._waiting.append(_plain(entry.ended, entry.waiting.total))
        if entry.data is not None and "train" in entry.data.splits:
            self._records.append(_plain(entry.ended, entry.data.splits["train"].records))
        if entry.training is not None:
            self._speed.append(_plain(entry.ended, entry.training.examples_per_second))
        if entry.outcome is not None:
            main = entry.outcome.main
            if entry.outcome.measure != self._measure:
                self._measure, self._figures = entry.outcome.measure, []
            self._figures.append(Point(entry.ended, main.value, main.low, main.high))
            self.before = entry

    def charts(self) -> dict[str, Markup]:
        """By title; empty if no night came so far that there is anything to draw."""
        title = figures.METRIC_NAMES.get(self._measure, "")
        named = {
            title[:1].upper() + title[1:]: (self._figures, lambda value: figures.value_text(self._measure, value)),
            "Examples a second": (self._speed, figures.rate),
            "Waiting": (self._waiting, figures.duration),
            "Training records": (self._records, figures.short_count),
        }
        return {title: line(title, points, write) for title, (points, write) in named.items() if points and title}


def _plain(time: float, value: float) -> Point:
    return Point(time, value, value, value)


def _row(entry: Entry, before: Entry | None, champion: bool, base: str) -> Row:
    figure, change, word = "", "", ""
    outcome, other = entry.outcome, before.outcome if before else None
    if outcome is not None:
        source = f"{entry.name}.outcome.metrics"
        figure = quoted.metric_of(source, outcome.measure, outcome.metrics)
        if outcome.measure == "ap":
            figure = quoted.joined("AP ", figure)
        if other is not None and other.measure == outcome.measure and other.weights_sha256 != outcome.weights_sha256:
            difference = unpaired(other.main, outcome.main, min(other.examples, outcome.examples))
            change, word = figures.change_text(outcome.measure, difference.value), word_of(outcome.measure, difference)
    return Row(
        ended=figures.short_moment(entry.ended),
        state=entry.state,
        run=entry.run or entry.recipe,
        report=f"{base}{quote(entry.report)}" if entry.report else "",
        champion=champion,
        figure=figure,
        change=change,
        word=word,
        arrow=figures.arrow(change),
        cause=_shortened(entry.cause),
        took=figures.duration(entry.seconds),
        reused=_reused(entry),
        data=f"{entry.data.dataset} {entry.data.fingerprint[:8]}" if entry.data else "",
    )


def _shortened(cause: str) -> str:
    return cause if len(cause) <= _MOST_CAUSE else f"{cause[:_MOST_CAUSE].rstrip()}…"


def _reused(entry: Entry) -> str:
    """Which stages were found done."""
    found = [stage for stage in STAGES if stage in entry.stages and entry.stages[stage].reused]
    return "all" if found and len(found) == len(entry.stages) else ", ".join(found)


def _sentence(last: Entry | None) -> Any:
    if last is None:
        return "No run has ended in this store yet; `podline run` makes one."
    when = f"The last one, {last.recipe} on {figures.moment(last.ended)}"
    if last.outcome is None or last.state != "finished":
        return f"{when}, {'was cancelled' if last.state == 'cancelled' else last.state}: {last.cause}"
    main = quoted.metric_of(f"{last.name}.outcome.metrics", last.outcome.measure, last.outcome.metrics)
    return quoted.joined(f"{when}, reached {figures.METRIC_NAMES[last.outcome.measure]} ", main, ".")
