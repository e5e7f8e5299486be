"""Writes a store's ``index.html``: every run of the ledger, newest first. Needs neither pandas nor matplotlib.

Nights, the runs of a schedule, form one list with charts; manual runs and retries form another.

Several processes may write it at once: a process that finds a new entry after writing writes the page again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup, escape

from podline import figures
from podline.documents import champions
from podline.documents.ledger_entry import Entry, Outcome
from podline.errors import ArtifactError, one_line
from podline.ledger import ledger
from podline.measures import measure_named
from podline.plurals import plural
from podline.reporting.blocks import Block, Chart, Grid, Kicker, Text, Title
from podline.reporting.document import document
from podline.reporting.escaping import unbroken
from podline.reporting.night_series import AllSeries, Change, Known, Series, night_of
from podline.reporting.over_nights import line, ticks
from podline.store.contract import BUCKET_SCHEME, INDEX, Store

MOST_ROWS = 1_000
"""Largest number of nights, and of other runs, in their tables; the charts show all nights."""
MOST_CHARTED = 12
"""Number of series of nights with charts: those that ended last."""

_HEAD = ["ended", "state", "run", "result", "change", "took", "re-used", "data"]
_NUMBERS = {"result", "change", "took"}
_ABOUT_NIGHTS = (
    "A night is a run that a schedule began. A change is the difference from the last night of the same schedule with "
    "the same settings, except seed and data; with “mean of 3”, from the mean of that night and all trainings like it. "
    "Green is better and red is worse: more than seeds usually do. A night that re-uses an earlier model has no "
    "change. The page of a run compares single examples, and so detects smaller changes."
)
_ABOUT_OTHERS = (
    "Runs that a person started, and retries. Nights are not compared with these; a retry of a night is compared "
    "with the last night, and “podline runs compare” compares any runs."
)
_BEGAN = {"hand": "by hand", "retry": "retry"}

# Characters of a failed night's cause; the ledger has the full text.
_MOST_CAUSE = 160
# Largest number of times that the page is written again because a run ended meanwhile.
_MOST_ROUNDS = 5


def write_index(store: Store) -> str:
    """Write the index into the store's root; return its name.

    Raises:
        StoreError: the ledger cannot be read, or the index cannot be written.
    """
    for _ in range(_MOST_ROUNDS):
        wanted = ledger.names(store)
        page = _page(store, wanted)
        store.publish_bytes(INDEX, page.encode(), replace=True)
        if ledger.names(store) == wanted:
            break
    return INDEX


def page_elsewhere(store: Store) -> str:
    """Return the page for a place outside the store, with absolute links to reports.

    Raises:
        StoreError: the ledger cannot be read.
    """
    return _page(store, ledger.names(store), _base(store.uri))


def _page(store: Store, wanted: Sequence[ledger.Named], base: str = "") -> str:
    """Render the page of some entries; damaged ones, and damaged histories of champions, are named at its top."""
    problems, crowned = list[str](), dict[str, str]()
    for recipe in champions.recipes(store):
        try:
            found = champions.champion(store, recipe)
        except ArtifactError as error:
            problems.append(one_line(error))
            continue
        crowned |= {recipe: found.run} if found else {}
    entries = ledger.entries(store, reversed(wanted), damaged=lambda error: problems.append(one_line(error)))
    return index_page(store.uri, entries, crowned, base, problems)


def _base(uri: str) -> str:
    """Return the base address of the store's root for a browser."""
    if uri.startswith(BUCKET_SCHEME):
        # Opens for users who are logged in to Google Cloud and may read the bucket.
        return f"https://storage.cloud.google.com/{quote(uri.removeprefix(BUCKET_SCHEME))}/"
    return f"{Path(uri).as_uri()}/"


def index_page(
    where: str,
    entries: Iterable[Entry],
    crowned: Mapping[str, str] | None = None,
    base: str = "",
    problems: Sequence[str] = (),
) -> str:
    """Render the page.

    Args:
        where: the store, as a user writes it.
        entries: the entries, oldest first; each is read once and not kept.
        crowned: recipe → run of its champion.
        base: address that is put before names in the store; empty for a page in the store's root.
        problems: what is left out, filled while the entries are read.
    """
    nights, others, every, known = _RunsTable("every night"), _RunsTable("other runs"), AllSeries(), Known()
    last = None
    for entry in entries:
        series = every.of(entry)
        change, slow = (series.change(entry, known), series.slow(entry)) if series else (Change(), "")
        known.add(entry)
        row = _row(entry, change, slow, champion=(crowned or {}).get(entry.recipe) == entry.run, base=base)
        if not entry.is_night:
            others.add(entry.name, row)
            continue
        nights.add(night_of(entry), row)
        last = entry
        if series:
            series.add(entry)
    count = plural(nights.count, "night") if nights.count else plural(others.count, "run")
    header: list[Block] = [Kicker([where]), Title(count, _sentence(last, others.count))]
    header += [Text(f"Left out: {problem}", "warning") for problem in problems]
    sections = [*_charted(every.newest_first(), crowned or {}), *_lists(nights, others)]
    return document("Nights", header, sections, ("page.css", "nights.css"))


class _RunsTable:
    """Rows by name, newest first; of too many rows, only the newest.

    Attributes:
        count: number of rows, including those left out.
    """

    def __init__(self, name: str) -> None:
        self.count = 0
        self._name = name
        self._rows: dict[str, Markup] = {}

    def add(self, name: str, row: Markup) -> None:
        """Add a row, or replace the one of the same name."""
        self.count += name not in self._rows
        self._rows.pop(name, None)
        self._rows[name] = row
        if len(self._rows) > MOST_ROWS:
            del self._rows[next(iter(self._rows))]

    def html(self) -> Markup:
        """Return a table that phones show as a list; ARIA roles mark its rows, which are no table rows there."""
        nights = self._name == "every night"
        names = _HEAD if nights else [*_HEAD[:2], "started", *_HEAD[2:]]
        cell = Markup('<th role="columnheader" scope="col"{}>{}</th>')
        number = Markup(' class="number"')
        return Markup(
            '<div class="scroll"{} tabindex="0" role="group" aria-label="Table: {}, the newest first">\n'
            '<table class="figures nights" role="table">\n<thead role="rowgroup"><tr role="row">{}</tr></thead>\n'
            '<tbody role="rowgroup">\n{}\n</tbody>\n</table></div>'
        ).format(
            "" if nights else Markup(' id="others"'),
            self._name,
            Markup().join(cell.format(number if name in _NUMBERS else "", name) for name in names),
            Markup("\n").join(reversed(self._rows.values())),
        )

    def markdown(self) -> str:
        """Return an empty text, as the index has only HTML."""
        return ""

    def blocks(self, note: str) -> Iterator[Block]:
        """Yield the number of rows left out, the table and a note."""
        if (older := self.count - len(self._rows)) > 0:
            newest = f"The newest {len(self._rows)}; {figures.count(older)} older ones: “podline runs list”."
            yield Text(newest, "note")
        yield self
        yield Text(note, "note")


def _lists(nights: _RunsTable, others: _RunsTable) -> Iterator[tuple[str, Iterable[Block]]]:
    if nights.count:
        yield "Every night", nights.blocks(_ABOUT_NIGHTS)
    if others.count:
        yield "Other runs", others.blocks(_ABOUT_OTHERS)


def _charted(found: Sequence[Series], crowned: Mapping[str, str]) -> Iterator[tuple[str | Markup, Iterable[Block]]]:
    """Yield the charts of each series that has any; charts of one measure share an axis."""
    charts = {id(series): series.charts() for series in found[:MOST_CHARTED]}
    drawn = [series for series in found[:MOST_CHARTED] if charts[id(series)]]
    axes: dict[tuple[str, ...], list[float]] = {}
    for key in {_axis(series, chart.title) for series in drawn for chart in charts[id(series)]}:
        axes[key] = ticks(
            chart for series in drawn for chart in charts[id(series)] if _axis(series, chart.title) == key
        )
    for series in drawn:
        blocks: list[Block] = [Text(text, "note") for text in _about(series, crowned)]
        lines = [(chart, line(chart, axes[_axis(series, chart.title)])) for chart in charts[id(series)]]
        blocks.append(Grid(*(Chart(svg, chart.title, chart.note) for chart, svg in lines)))
        yield Markup("{} <small>{}</small>").format(series.first.recipe, series.first.schedule), blocks
    if (more := len(found) - MOST_CHARTED) > 0:
        yield "More nights", [Text(f"{figures.count(more)} more kinds ended earlier and have no charts.", "note")]


def _about(series: Series, crowned: Mapping[str, str]) -> Iterator[str]:
    settings = f", with {_settings(series.first)}" if _settings(series.first) else ""
    yield f"{figures.count(series.count)} nights since {figures.day(series.first.ended)}{settings}"
    if promotion := _standing(series, crowned):
        yield (
            f"{promotion}. In the chart: ○ promoted, × refused for this figure; the dashed line is where models are "
            "refused."
        )


def _standing(series: Series, crowned: Mapping[str, str]) -> str:
    """Describe champion, reference and thresholds in a line; empty without promotions."""
    decision = series.decision
    if decision is None:
        return ""
    said = [f"Champion {crowned[series.first.recipe]}"] if series.first.recipe in crowned else ["No champion"]
    said += [f"reference {decision.reference}"] if decision.reference else []
    return "; ".join([*said, *filter(None, [decision.thresholds])])


def _axis(series: Series, title: str) -> tuple[str, ...]:
    """Return the key of charts that share an axis; speeds and record counts are shared within a recipe only."""
    of_result = measure_named(series.measure).label.lower() == title.lower()
    return (title,) if of_result else (title, series.first.recipe)


def _settings(entry: Entry) -> str:
    """Return the settings that differ from the recipe's, except the seed."""
    return ", ".join(f"{path}={value}" for path, value in entry.overridden.items() if path != "seed")


def _row(entry: Entry, change: Change, slow: str, *, champion: bool, base: str) -> Markup:
    when = Markup('<th role="rowheader" scope="row" class="when">{}</th>').format(figures.short_moment(entry.ended))
    cells = [when, _cell(f"state {entry.state}", entry.state)]
    if not entry.is_night:
        retried = entry.started == "retry" and entry.schedule
        cells.append(_cell("began", "retry of a night" if retried else _BEGAN.get(entry.started, "")))
    cells.append(_cell("run", _run(entry, base, champion=champion)))
    if entry.cause:
        cells.append(Markup('<td role="cell" class="cause" colspan="2">{}</td>').format(_shortened(entry.cause)))
    else:
        figure = figures.with_name(entry.outcome.measure, _main(entry.outcome)) if entry.outcome else ""
        cells += [_cell("number figure", figure), _cell("number changed", _changed(change))]
    slower = Markup('<br><span class="slow">{}</span>').format(unbroken(slow)) if slow else ""
    cells.append(_cell("number took", Markup("{}{}").format(unbroken(figures.duration(entry.seconds)), slower)))
    cells.append(_cell("reused", _reused(entry)))
    cells.append(_cell("data", f"{entry.data.dataset} {entry.data.fingerprint[:8]}" if entry.data else ""))
    return Markup('<tr role="row">{}</tr>').format(Markup().join(cells))


def _cell(style: str, content: str) -> Markup:
    return Markup('<td role="cell" class="{}">{}</td>').format(style, unbroken(content))


def _run(entry: Entry, base: str, *, champion: bool) -> Markup:
    """Return the run's name, a link to its report, its state and the reason."""
    name: str = entry.run or entry.recipe
    if entry.report:
        name = Markup('<a href="{}">{}</a>').format(f"{base}{quote(entry.report)}", name)
    marks = (
        ("b", "champion", "champion" if champion and entry.outcome is not None else ""),
        ("b", "below", _below(entry)),
        ("span", "verdict", _verdict(entry)),
    )
    element = Markup(' <{0} class="{1}">{2}</{0}>')
    return Markup().join([escape(name), *(element.format(*mark[:2], unbroken(mark[2])) for mark in marks if mark[2])])


def _changed(change: Change) -> Markup:
    if not change.text:
        return Markup()
    arrow = figures.arrow(change.text) if change.word else ""
    sign = Markup('<span aria-hidden="true">{}</span> ').format(arrow) if arrow else ""
    return Markup('<span class="change {}">{}{}</span>').format(change.word, sign, change.text)


def _verdict(entry: Entry) -> str:
    """Return the verdict with its reason; empty without a promotion."""
    decision = entry.promotion
    if decision is None:
        return ""
    return _shortened(": ".join(filter(None, (decision.verdict, decision.reason))))


def _below(entry: Entry) -> str:
    """Describe by how much a model is beyond the line of refusal; empty if it is not."""
    floor = entry.promotion.floor if entry.promotion else None
    if floor is None or entry.outcome is None:
        return ""
    measure, value = measure_named(entry.outcome.measure), entry.outcome.main.value
    by = figures.change_text(measure.name, abs(floor - value)).removeprefix("+")
    side = "below" if measure.higher_is_better else "above"
    return f"{side} the line of refusal by {by}" if measure.better(floor, value) else ""


def _shortened(cause: str) -> str:
    return cause if len(cause) <= _MOST_CAUSE else f"{cause[:_MOST_CAUSE].rstrip()}…"


def _reused(entry: Entry) -> str:
    """Return the reused stages; the list is incomplete for a run that did not finish."""
    found = [name for name, stage in entry.stages.items() if stage.reused]
    everything = found and len(found) == len(entry.stages) and entry.state == "finished"
    return "all" if everything else ", ".join(found)


def _sentence(last: Entry | None, others: int) -> Markup:
    """Describe the last night, with a link to other runs."""
    link = (
        Markup(' <a href="#others">{}</a> below.').format(plural(others, "other run" if last else "run"))
        if others
        else ""
    )
    return Markup("{}{}").format(unbroken(_of_last(last)), link)


def _of_last(last: Entry | None) -> str:
    if last is None:
        return "No run of a schedule has ended in this store yet."
    when = f"The last one, {last.recipe} on {figures.moment(last.ended)}"
    if last.outcome is None or last.state != "finished":
        return f"{when}, {'was cancelled' if last.state == 'cancelled' else last.state}: {last.cause}"
    label = measure_named(last.outcome.measure).label
    return f"{when}, reached {label} {_main(last.outcome)}."


def _main(outcome: Outcome) -> str:
    return figures.metric_text(outcome.measure, outcome.main)
