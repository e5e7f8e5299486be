"""``index.html`` of a store: every run of the ledger, the newest first. Needs neither pandas nor matplotlib.

Nights, the runs of a schedule, are one list with charts; runs by hand and retries are another.

Two who write it at once do no harm: whoever finds, after writing, that an entry came meanwhile, writes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from podline import figures
from podline.documents import champions
from podline.documents.ledger_entry import Entry, Outcome
from podline.ledger import ledger
from podline.measures import measure_named
from podline.reporting.night_series import AllSeries, Change, Series, night_of
from podline.reporting.over_nights import line, ticks
from podline.reporting.templates import TEMPLATES
from podline.store.contract import BUCKET_SCHEME, INDEX, Store

MOST_ROWS = 1_000
"""So many nights are in their table, and so many other runs in theirs; the charts show all nights."""
MOST_CHARTED = 12
"""Of so many kinds of nights, those that ended last, there are charts."""

_BEGAN = {"hand": "by hand", "retry": "retry"}

# Characters of what ended a night before its time; the ledger has all of it.
_MOST_CAUSE = 160
# Whoever writes the index reads the ledger again so many times at most: nights do not end faster than that.
_MOST_ROUNDS = 5


class NightRow(NamedTuple):
    """A run in its table: finished texts."""

    ended: str
    began: str
    state: str
    run: str
    report: str
    champion: bool
    verdict: str
    below: str
    figure: str
    change: str
    word: str
    arrow: str
    cause: str
    slow: str
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
    nights, others, every = _Table(), _Table(), AllSeries()
    last = None
    for entry in entries:
        series = every.of(entry)
        change = series.change(entry) if series else Change()
        row = _row(
            entry, change, (crowned or {}).get(entry.recipe) == entry.run, base, series.slow(entry) if series else ""
        )
        if entry.started != "schedule":
            others.add(entry.name, row)
            continue
        nights.add(night_of(entry), row)
        last = entry
        if series:
            series.add(entry)
    found = every.newest_first()
    return TEMPLATES.get_template("nights.html").render(
        where=where,
        sentence=_sentence(last),
        series=[*_sections(found[:MOST_CHARTED], crowned or {})],
        not_charted=figures.count(len(found) - MOST_CHARTED) if len(found) > MOST_CHARTED else "",
        nights=nights,
        others=others,
    )


class _Table:
    """Rows under their names, the newest first; of very many the newest.

    Attributes:
        count: how many there are, those that are left out among them.
    """

    def __init__(self) -> None:
        self.count = 0
        self._rows: dict[str, NightRow] = {}

    def add(self, name: str, row: NightRow) -> None:
        """One more, or another one of the same name in place of it."""
        self.count += name not in self._rows
        self._rows.pop(name, None)
        self._rows[name] = row
        if len(self._rows) > MOST_ROWS:
            del self._rows[next(iter(self._rows))]

    @property
    def rows(self) -> list[NightRow]:
        """The newest first."""
        return [*self._rows.values()][::-1]

    @property
    def older(self) -> str:
        """How many are left out; empty for none."""
        return figures.count(self.count - len(self._rows)) if self.count > len(self._rows) else ""


def _sections(found: Sequence[Series], crowned: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The charts of each series that has any. Results of one measure have one axis, so that they can be compared."""
    charts = {id(series): series.charts() for series in found}
    axes: dict[tuple[str, ...], list[float]] = {}
    for key in {_axis(series, chart.title) for series in found for chart in charts[id(series)]}:
        sharing = [chart for series in found for chart in charts[id(series)] if _axis(series, chart.title) == key]
        axes[key] = ticks(sharing)
    for series in found:
        drawn = [(chart, line(chart, axes[_axis(series, chart.title)])) for chart in charts[id(series)]]
        if drawn:
            yield {
                "recipe": series.first.recipe,
                "schedule": series.first.schedule,
                "settings": _settings(series.first),
                "count": figures.count(series.count),
                "since": figures.day(series.first.ended),
                "promotion": _standing(series, crowned),
                "charts": [{"title": chart.title, "svg": svg, "note": chart.note} for chart, svg in drawn],
            }


def _standing(series: Series, crowned: Mapping[str, str]) -> str:
    """Return champion, reference and margins in a line; empty where no promotion was asked for."""
    decision = series.decision
    if decision is None:
        return ""
    said = [f"Champion {crowned[series.first.recipe]}"] if series.first.recipe in crowned else ["No champion"]
    said += [f"reference {decision.reference}"] if decision.reference else []
    return "; ".join([*said, *filter(None, [decision.margins])])


def _axis(series: Series, title: str) -> tuple[str, ...]:
    """What charts with one axis have in common: speeds and records of another recipe are of another size."""
    of_result = measure_named(series.measure).label.lower() == title.lower()
    return (title,) if of_result else (title, series.first.recipe)


def _settings(entry: Entry) -> str:
    """What is not as the recipe says; a seed is no difference between nights."""
    return ", ".join(f"{path}={value}" for path, value in entry.overridden.items() if path != "seed")


def _row(entry: Entry, change: Change, champion: bool, base: str, slow: str) -> NightRow:
    figure = ""
    if entry.outcome is not None:
        figure = figures.with_name(entry.outcome.measure, _main(entry.outcome))
    began = _BEGAN.get(entry.started, "")
    return NightRow(
        ended=figures.short_moment(entry.ended),
        began="retry of a night" if entry.started == "retry" and entry.schedule else began,
        state=entry.state,
        run=entry.run or entry.recipe,
        report=f"{base}{quote(entry.report)}" if entry.report else "",
        champion=champion and entry.outcome is not None,
        verdict=_verdict(entry),
        below=_below(entry),
        figure=figure,
        change=change.text,
        word=change.word,
        arrow=figures.arrow(change.text) if change.word else "",
        cause=_shortened(entry.cause),
        slow=slow,
        took=figures.duration(entry.seconds),
        reused=_reused(entry),
        data=f"{entry.data.dataset} {entry.data.fingerprint[:8]}" if entry.data else "",
    )


def _verdict(entry: Entry) -> str:
    """Return the verdict with its reason; empty if no promotion was asked for."""
    decision = entry.promotion
    if decision is None:
        return ""
    return _shortened(": ".join(filter(None, (decision.verdict, decision.reason))))


def _below(entry: Entry) -> str:
    """Return by how much a model is below the reference less the margin, in words; empty if it is not."""
    floor = entry.promotion.floor if entry.promotion else None
    if floor is None or entry.outcome is None or entry.outcome.main.value >= floor:
        return ""
    by = figures.change_text(entry.outcome.measure, floor - entry.outcome.main.value).removeprefix("+")
    return f"below its margin by {by}"


def _shortened(cause: str) -> str:
    return cause if len(cause) <= _MOST_CAUSE else f"{cause[:_MOST_CAUSE].rstrip()}…"


def _reused(entry: Entry) -> str:
    """Which stages were found done. Of a run that did not come to its end it is not known what all of them are."""
    found = [name for name, stage in entry.stages.items() if stage.reused]
    everything = found and len(found) == len(entry.stages) and entry.state == "finished"
    return "all" if everything else ", ".join(found)


def _sentence(last: Entry | None) -> str:
    """Of the last night."""
    if last is None:
        return "No run of a schedule has ended in this store yet."
    when = f"The last one, {last.recipe} on {figures.moment(last.ended)}"
    if last.outcome is None or last.state != "finished":
        return f"{when}, {'was cancelled' if last.state == 'cancelled' else last.state}: {last.cause}"
    label = measure_named(last.outcome.measure).label
    return f"{when}, reached {label} {_main(last.outcome)}."


def _main(outcome: Outcome) -> str:
    return figures.metric_text(outcome.measure, outcome.main)
