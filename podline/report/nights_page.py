"""Writes a store's ``index.html``: every run of the ledger, newest first. Needs neither pandas nor matplotlib.

Nights, the runs that a schedule or an event began, form one list with charts; manual runs and retries form another.

Several processes may write the page at once: a process that finds a new entry after writing writes the page again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup, escape

from podline.base import figures
from podline.base.errors import ArtifactError, one_line
from podline.base.plurals import plural
from podline.compare.settings import differing, in_headline
from podline.documents import champions
from podline.documents.ledger_entry import Entry, Outcome
from podline.ledger import ledger
from podline.recipes import measures
from podline.recipes.measures import measure_named
from podline.report.blocks import Block, Change, Chart, Code, Fold, Grid, Kicker, Standing, Text, Title
from podline.report.document import document
from podline.report.escaping import unbroken
from podline.report.night_series import AllSeries, KnownFigures, NightSeries, night_of
from podline.report.over_nights import line, ticks
from podline.store.contract import BUCKET_SCHEME, INDEX, Store

MOST_ROWS = 1_000
"""Largest number of nights, and of other runs, in their tables; charts cover all nights of a series."""
MOST_CHARTED = 12
"""Number of series of nights with charts: those that ended last."""

_HEAD = ["ended (UTC)", "state", "run", "result", "change", "took", "re-used", "data"]
_NUMBERS = {"result", "change", "took"}
_ABOUT_NIGHTS = (
    "A night is a run that a schedule or an event began. A change is the difference from the last night of the same "
    "schedule with the same settings, except seed and data; with “mean of 3”, from the mean of that night and all "
    "trainings like it. Green is better and red is worse: more than seeds usually do. A night that re-uses an earlier "
    "model has no change. The page of a run compares single examples, and so detects smaller changes."
)
_ABOUT_OTHERS = (
    "Runs that a person started, and retries. Nights are not compared with these; a retry of a night is compared "
    "with the last night, and “podline runs compare” compares any runs."
)
# Kinds of problems, the worst first.
_KINDS = ("failed", "worse", "refused", "cancelled", "slower")
# Number of runs that the box at the top names.
_NAMED = 4
# Tables with more rows than this can be filtered.
_FEW = 10
# Seconds after the newest night at which a schedule without a new night is no longer shown at the top.
_OLD = 8 * 86_400
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
    """Return the page for use outside the store, with absolute links to reports.

    Raises:
        StoreError: the ledger cannot be read.
    """
    if store.uri.startswith(BUCKET_SCHEME):
        # Opens for users who are logged in to Google Cloud and may read the bucket.
        base = f"https://storage.cloud.google.com/{quote(store.uri.removeprefix(BUCKET_SCHEME))}"
    else:
        base = Path(store.uri).as_uri()
    return _page(store, ledger.names(store), f"{base}/")


def _page(store: Store, wanted: Sequence[ledger.Named], base: str = "") -> str:
    """Render the page; damaged entries and histories of champions are left out, and listed at the top."""
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
        entries: the entries, oldest first; iterated once, and only those in tables are kept in memory.
        crowned: recipe → run of the recipe's champion.
        base: URL of the store's root, for links; empty for a page in the store's root.
        problems: reasons why files are left out; the iteration over ``entries`` may append to it.
    """
    nights, others, every, known = _RunsTable("every night"), _RunsTable("other runs"), AllSeries(), KnownFigures()
    newest: dict[tuple[str, str], _Row] = {}
    for entry in entries:
        series = every.of(entry)
        change, slow = (series.change(entry, known), series.slow(entry)) if series else (Change(), "")
        known.add(entry)
        before = series.last if series and change.word else None
        row = _Row(entry, change, slow, (crowned or {}).get(entry.recipe, ""), base, before)
        newest[entry.recipe, entry.schedule] = row
        if not entry.is_night:
            others.add(entry.name, row)
            continue
        nights.add(night_of(entry), row)
        if series:
            series.add(entry)
    header: list[Block] = [Kicker([where])]
    header += [Text(f"Left out: {problem}", "warning") for problem in problems]
    current = _current([row for row in newest.values() if row.entry.schedule or not nights.count])
    header += _answer(current, nights.count, others.count)
    choices = _choices([*nights.rows.values(), *others.rows.values()])
    (nights if nights.count else others).above = _selects(choices) if choices else Markup()
    last = _RunsTable("the newest")
    for row in reversed(current):
        last.add(row.entry.name, row)
    sections: dict[str, list[Block]] = {
        "What next": [*_next(current[:1])],
        f"The newest of each {'schedule' if nights.count else 'recipe'}": [last] if last.count > 1 else [],
        "Charts": [*_charted(every.newest_first(), crowned or {})],
        "Every night, the newest first": [*nights.blocks(_ABOUT_NIGHTS)],
        "Other runs" if nights.count else "All runs": [*others.blocks(_ABOUT_OTHERS)],
    }
    shown = [(heading, blocks) for heading, blocks in sections.items() if blocks]
    return document("Nights", header, shown, ("page.css", "nights.css"), _filters(choices))


class _Row(NamedTuple):
    """A run in a table: entry, change, slow stages, champion's run, URL of the store, entry of the previous night."""

    entry: Entry
    change: Change
    slow: str
    champion: str
    base: str
    before: Entry | None

    @property
    def problems(self) -> dict[str, str]:
        """Return kind of problem → description, the worst first."""
        entry, decision = self.entry, self.entry.promotion
        found = {
            "failed": entry.cause if entry.state == "failed" else None,
            "worse": self._worse() if self.change.word == "worse" else None,
            "refused": decision.reason if decision and decision.verdict == "refused" else None,
            "cancelled": entry.cause if entry.state == "cancelled" else None,
            "slower": self.slow or None,
        }
        return {kind: text for kind, text in found.items() if text is not None}

    def _worse(self) -> str:
        origins = [self.before, self.entry] if self.before else [self.entry]
        changed = in_headline(differing(origins, lambda *_: "not compared here"))
        return ", ".join(filter(None, [self.change.text, changed, "more than seeds usually do"]))

    @property
    def marks(self) -> set[str]:
        """Return the keys by which tables are filtered: kinds of problems, and the verdict of promotion."""
        return {*self.problems, *([self.entry.promotion.verdict] if self.entry.promotion else [])}


def _current(newest: Sequence[_Row]) -> list[_Row]:
    """Sort the runs, the worst first; leave out a run that ended over 8 days before the newest one.

    ``newest`` has the newest run of each schedule, or of each recipe.
    """
    latest = max((row.entry.ended for row in newest), default=0.0)
    kept = sorted((row for row in newest if latest - row.entry.ended <= _OLD), key=lambda row: -row.entry.ended)
    return sorted(kept, key=lambda row: min(map(_KINDS.index, row.problems), default=len(_KINDS)))


def _answer(current: Sequence[_Row], nights: int, others: int) -> Iterator[Block]:
    """Yield the headline of the page, and a box with the problems of the newest runs."""
    counts = Counter(kind for row in current for kind in row.problems)
    worst = next((f"{counts[kind]} {kind}" for kind in _KINDS if counts[kind]), "")
    noun, of = ("night", "schedule") if nights else ("run", "recipe")
    total = plural(nights or others, noun)
    about = f"in the newest {noun} of {plural(len(current), of)}; {total} in all. " if worst or nights else ""
    about += "" if nights else "No run of a schedule has ended in this store yet. "
    last = Markup().join(_last(row) for row in sorted(current, key=lambda row: -row.entry.ended)[:1])
    link = Markup(' <a href="#others">{}</a> below.').format(plural(others, "other run")) if nights and others else ""
    yield Title(worst or ("All well" if nights else total), Markup("{}{}{}").format(about, last, link))
    if lines := [*_look_first(current)]:
        yield Standing("Look at this first", "", lines, "worse" if counts["failed"] + counts["worse"] else "noise")
    elif nights:
        yield Standing(
            "Nothing to do", ": all finished, and none is worse by more than seeds usually do.", (), "better"
        )


def _look_first(current: Sequence[_Row]) -> Iterator[str]:
    """Yield a line for each of the first runs with problems, and a line with the number of the others."""
    bad = [row for row in current if row.problems]
    for row in bad[:_NAMED]:
        stays = f"; {row.champion} stays champion" if row.champion not in ("", row.entry.run) else ""
        problems = "; ".join(f"{kind}: {_shortened(text)}" if text else kind for kind, text in row.problems.items())
        yield f"{row.entry.recipe}, {figures.moment(row.entry.ended)}, {problems}{stays}"
    if len(bad) > _NAMED:
        yield f"{len(bad) - _NAMED} more in the table below"


def _next(worst: Iterable[_Row]) -> Iterator[Block]:
    """Yield the commands for a closer look at the worst runs."""
    for row in worst:
        name = row.entry.run or row.entry.name
        commands = {f"podline runs show {name}": "what it did, and how it ended"}
        decision = row.entry.promotion
        if against := row.before.run if row.before else decision.reference if decision else "":
            commands[f"podline runs compare {name} {against} --why"] = "what differs, with examples"
        if row.entry.outcome:
            commands[f"podline models predict {name} photos/"] = "answers for a folder"
        yield Code.of(commands)
        retry = " Retry in Prefect’s UI goes on from the newest checkpoint." if "failed" in row.problems else ""
        yield Text(f"Add --root if the store is not the default one.{retry}", "note")


def _choices(rows: Sequence[_Row]) -> Mapping[str, Mapping[str, str]]:
    """Return the filters of the tables, label → key → text; empty if all tables have at most 10 rows together."""
    if len(rows) <= _FEW:
        return {}
    marks = Counter(mark for row in rows for mark in row.marks)
    recipes = {_mark(recipe): recipe for recipe in sorted({row.entry.recipe for row in rows})}
    kinds = {kind: f"{kind} ({marks[kind]:,})" for kind in (*_KINDS, "promoted", "undecided") if marks[kind]}
    return {"Recipe": recipes, "Show": kinds}


def _selects(choices: Mapping[str, Mapping[str, str]]) -> Markup:
    option, chosen = Markup('<option value="{}">{}</option>'), Markup()
    for name, texts in choices.items():
        options = Markup().join(option.format(*each) for each in {"": "all", **texts}.items())
        chosen += Markup("<label>{} <select>{}</select></label> ").format(name, options)
    return Markup('<p class="choice">{}</p>\n').format(chosen)


def _filters(choices: Mapping[str, Mapping[str, str]]) -> str:
    """Return the CSS rules that hide rows without the chosen key, since the page has no scripts."""
    rule = 'main:has(option[value="{0}"]:checked) .chosen tbody tr:not([data-is~="{0}"]) {{ display: none; }}'
    return "\n".join(rule.format(mark) for texts in choices.values() for mark in texts)


def _mark(recipe: str) -> str:
    """Return a key for a recipe that is valid in CSS, whatever characters the name has."""
    return f"of-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


class _RunsTable(Block):
    """A table of runs, newest first, with at most :data:`MOST_ROWS` rows."""

    def __init__(self, name: str) -> None:
        self._name, self.above = name, Markup()
        self.count = 0  # with the rows left out
        self.rows: dict[str, _Row] = {}  # oldest first

    def add(self, name: str, row: _Row) -> None:
        """Add a row, or replace the row of the same name."""
        self.count += name not in self.rows
        self.rows.pop(name, None)
        self.rows[name] = row
        if len(self.rows) > MOST_ROWS:
            del self.rows[next(iter(self.rows))]

    def __html__(self) -> Markup:
        # Phones show the table as a list; ARIA roles keep the semantics of a table, which CSS removes there.
        others = self._name == "other runs"
        names = [*_HEAD[:2], "started", *_HEAD[2:]] if others else _HEAD
        cell = Markup('<th role="columnheader" scope="col"{}>{}</th>')
        number = Markup(' class="number"')
        return Markup(
            '{}<div class="scroll"{} tabindex="0" role="group" aria-label="Table: {}">\n'
            '<table class="figures nights{}" role="table">\n<thead role="rowgroup"><tr role="row">{}</tr></thead>\n'
            '<tbody role="rowgroup">\n{}\n</tbody>\n</table></div>'
        ).format(
            self.above,
            Markup(' id="others"') if others else "",
            self._name,
            "" if self._name == "the newest" else " chosen",
            Markup().join(cell.format(number if name in _NUMBERS else "", name) for name in names),
            Markup("\n").join(_row(row, began=others) for row in reversed(self.rows.values())),
        )

    def blocks(self, note: str) -> Iterator[Block]:
        """Yield the number of rows left out, the table and a note; yield nothing if the table is empty."""
        if not self.count:
            return
        if (older := self.count - len(self.rows)) > 0:
            newest = f"The newest {len(self.rows)}; {figures.count(older)} older ones: “podline runs list”."
            yield Text(newest, "note")
        yield self
        yield Text(note, "note")


def _charted(found: Sequence[NightSeries], crowned: Mapping[str, str]) -> Iterator[Block]:
    """Yield the charts of each series, folded except the first; charts of the same quantity share a y axis."""
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
        yield Fold(f"{series.first.recipe}, {series.first.schedule}", *blocks, opened=series is drawn[0])
    if (more := len(found) - MOST_CHARTED) > 0:
        yield Text(f"{figures.count(more)} more series of nights ended earlier and have no charts.", "note")


def _about(series: NightSeries, crowned: Mapping[str, str]) -> Iterator[str]:
    first, decision = series.first, series.decision
    overridden = ", ".join(f"{path}={value}" for path, value in first.overridden.items() if path != "seed")
    settings = f", with {overridden}" if overridden else ""
    yield f"{plural(series.count, 'night')} since {figures.date(first.ended)}{settings}"
    if decision:
        champion = f"Champion {crowned[first.recipe]}" if first.recipe in crowned else "No champion"
        reference = f"reference {decision.reference}" if decision.reference else ""
        promotion = "; ".join(filter(None, [champion, reference, decision.thresholds]))
        yield (
            f"{promotion}. In the chart: ○ promoted, × refused for this figure; the dashed line is where models are "
            "refused."
        )


def _axis(series: NightSeries, title: str) -> tuple[str, ...]:
    """Return a key equal for charts that share a y axis: of the same metric, else of the same title and recipe."""
    of_result = measure_named(series.measure).label.lower() == title.lower()
    return (title,) if of_result else (title, series.first.recipe)


def _row(row: _Row, *, began: bool) -> Markup:
    entry = row.entry
    when = Markup('<th role="rowheader" scope="row" class="when">{}</th>').format(figures.short_moment(entry.ended))
    cells = [when, _cell(f"state {entry.state}", entry.state)]
    if began:
        retried = entry.started == "retry" and entry.schedule
        cells.append(_cell("began", "retry of a night" if retried else _BEGAN.get(entry.started, "")))
    cells.append(_cell("run", _run(row)))
    if entry.cause:
        cells.append(Markup('<td role="cell" class="cause" colspan="2">{}</td>').format(_shortened(entry.cause)))
    else:
        figure = measures.with_name(entry.outcome.measure, _main(entry.outcome)) if entry.outcome else ""
        cells += [_cell("number figure", figure), _cell("number changed", escape(row.change))]
    slower = Markup('<br><span class="slow">{}</span>').format(unbroken(row.slow)) if row.slow else ""
    cells.append(_cell("number took", Markup("{}{}").format(unbroken(figures.duration(entry.seconds)), slower)))
    cells.append(_cell("reused", _reused(entry)))
    cells.append(_cell("data", f"{entry.data.dataset} {entry.data.fingerprint[:8]}" if entry.data else ""))
    marks = " ".join([*sorted(row.marks), _mark(entry.recipe)])
    return Markup('<tr role="row" data-is="{}">{}</tr>').format(marks, Markup().join(cells))


def _cell(style: str, content: str) -> Markup:
    return Markup('<td role="cell" class="{}">{}</td>').format(style, unbroken(content))


def _run(row: _Row) -> Markup:
    """Return the run's name with a link to its report, and whether it is the champion, promoted or refused."""
    entry, champion = row.entry, row.champion == row.entry.run
    marks = (
        ("b", "champion", "champion" if champion and entry.outcome is not None else ""),
        ("b", "below", _below(entry)),
        ("span", "verdict", _verdict(entry)),
    )
    element = Markup(' <{0} class="{1}">{2}</{0}>')
    told = (element.format(*mark[:2], unbroken(mark[2])) for mark in marks if mark[2])
    return Markup().join([_link(row, entry.run or entry.recipe), *told])


def _link(row: _Row, text: str) -> Markup:
    address = f"{row.base}{quote(row.entry.report)}" if row.entry.report else ""
    return Markup('<a href="{}">{}</a>').format(address, text) if address else escape(text)


def _verdict(entry: Entry) -> str:
    decision = entry.promotion
    if decision is None:
        return ""
    return _shortened(": ".join(filter(None, (decision.verdict, decision.reason))))


def _below(entry: Entry) -> str:
    """Describe how far the main metric is beyond the threshold of refusal; empty if it is not."""
    floor = entry.promotion.floor if entry.promotion else None
    if floor is None or entry.outcome is None:
        return ""
    measure, value = measure_named(entry.outcome.measure), entry.outcome.main.value
    by = measures.change_text(measure.name, abs(floor - value)).removeprefix("+")
    side = "below" if measure.higher_is_better else "above"
    return f"{side} the line of refusal by {by}" if measure.better(floor, value) else ""


def _shortened(cause: str) -> str:
    return cause if len(cause) <= _MOST_CAUSE else f"{cause[:_MOST_CAUSE].rstrip()}…"


def _reused(entry: Entry) -> str:
    """Return the names of reused stages as text; ``all`` if a finished run reused every stage, empty for none."""
    found = [name for name, stage in entry.stages.items() if stage.reused]
    everything = found and len(found) == len(entry.stages) and entry.state == "finished"
    return "all" if everything else ", ".join(found)


def _last(row: _Row) -> Markup:
    entry = row.entry
    if entry.outcome is None or entry.state != "finished":
        state = "was cancelled" if entry.state == "cancelled" else entry.state
        ended = f"{state}: {_shortened(entry.cause)}" if entry.cause else f"{state}."
    else:
        ended = f"reached {measure_named(entry.outcome.measure).label} {_main(entry.outcome)}."
    when = Markup("The last one, {} on {}, {}")
    return when.format(_link(row, entry.recipe), figures.moment(entry.ended), unbroken(ended))


def _main(outcome: Outcome) -> str:
    return measures.metric_text(outcome.measure, outcome.main)
