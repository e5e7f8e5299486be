"""Writes a page about several runs: curves in one chart, results, differences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from podline.base.drawing.drawing import chart
from podline.base.drawing.svg import Svg
from podline.base.errors import StoreError
from podline.base.figures import arrow
from podline.compare.runs import RunsComparison, compare_runs
from podline.compare.settings import NONE
from podline.compare.words import signed
from podline.documents.completion import record_files
from podline.documents.ledger_entry import Entry
from podline.documents.metrics_log import EvaluationLine, StepsLine, metrics_of, rejected_steps
from podline.recipes.measures import change_text
from podline.report.blocks import Block, Chart, Code, Kicker, Standing, Table, Text, Title
from podline.report.charts import COLOURS
from podline.report.document import document
from podline.report.over_nights import MOST_POINTS
from podline.store import digests
from podline.store.contract import INDEX, Store

HTML, SVG = "comparison.html", "comparison.svg"
# If more settings differ, the legend has only the runs' names.
_NAMED_SETTINGS = 4


class _Curves(NamedTuple):
    """The measurements of a run during training: a sample of its steps, its evaluations, and rejected steps."""

    label: str
    steps: list[StepsLine]
    evaluations: list[EvaluationLine]
    rejected: set[int]


class ComparisonPage(NamedTuple):
    """The paths of the page and its chart in the store."""

    html: str
    svg: str


def write(store: Store, entries: Sequence[Entry]) -> ComparisonPage:
    """Write one page and one chart about several runs, under ``comparisons/``.

    Raises:
        StoreError: a run has no metrics, or the page cannot be written.
        ArtifactError: a file of a run is damaged.
    """
    found = compare_runs(store, entries)
    runs = [_curves(store, entry, label) for label, entry in zip(labels(found), entries, strict=True)]
    folder = f"comparisons/{digests.of_json(found.names)[:12]}"
    page = ComparisonPage(f"{folder}/{HTML}", f"{folder}/{SVG}")
    drawn = _chart(runs)
    store.publish_bytes(page.svg, drawn.file().encode(), replace=True)
    store.publish_bytes(page.html, _page(found, runs, drawn).encode(), replace=True)
    record_files(store, folder, "compare", page)
    return page


def _curves(store: Store, entry: Entry, label: str) -> _Curves:
    if not entry.run:
        raise StoreError(f"run {entry.name} has no training curves, since it trained nothing; leave it out")
    log = metrics_of(store, f"runs/{entry.run}")
    lines = log.rare()
    return _Curves(
        label,
        log.steps(MOST_POINTS),
        [line for line in lines if isinstance(line, EvaluationLine)],
        rejected_steps(lines),
    )


def labels(found: RunsComparison) -> list[str]:
    """Return a label for each run: its name and, if at most four settings differ, its values of those settings."""
    settings = [row for row in found.differences if row.area == "settings"]
    if len(settings) > _NAMED_SETTINGS:
        return list(found.runs)
    values = [
        ", ".join(f"{row.name} {row.values[place]}" for row in settings if row.values[place] != NONE)
        for place in range(len(found.runs))
    ]
    return [f"{run} ({text})" if text else run for run, text in zip(found.runs, values, strict=True)]


def _page(found: RunsComparison, runs: Sequence[_Curves], drawn: Svg) -> str:
    named = [f"{number}: {name}" for number, name in enumerate(found.runs, start=1)]
    header = [Kicker(found.runs, f"../../{INDEX}"), *_answer(found)]
    results = Table(["", *named], [(name, *values) for name, values in found.results.items() if name != "run"])
    rows = [(row.area, row.name, *row.values) for row in found.differences]
    same = Text("Settings, data, code and environment agree.")
    differences = Table(["", "", *named], rows, words=2) if rows else same
    sections: list[tuple[str, list[Block]]] = [
        ("What next", [_next(found)]),
        ("What differs", [differences]),
        ("Curves", [Chart(drawn, caption=_caption(runs), wide=True)]),
        ("Results", [results]),
    ]
    return document(f"{len(runs)} runs", header, sections)


def _answer(found: RunsComparison) -> Iterator[Block]:
    """Yield the title, and each run's difference from the first run with its verdict, worse runs first."""
    ranked = sorted(found.verdicts, key=lambda verdict: ("worse", "better", "noise").index(verdict.word))
    words, about = f"{len(found.runs)} runs", f"beside {found.runs[0]}"
    if len(found.runs) == 2 and ranked:
        by, [only] = signed(ranked[0].measure, ranked[0].difference.value), ranked
        words = "No clear difference" if only.word == "noise" else by.capitalize()
        about = f"{only.run} beside {only.other}: {by}, {only.difference.said}"
    yield Title(words, about)
    for verdict in ranked:
        change = change_text(verdict.measure, verdict.difference.value)
        first, *lines = verdict.lines()
        yield Standing(change, f": {first}.", [line.strip() for line in lines], verdict.word, arrow(change))
    shown = {line for verdict in ranked for line in verdict.lines()}
    yield from (Text(line, "warning") for line in found.words if line not in shown)


def _next(found: RunsComparison) -> Code:
    """Return the commands for a closer look at the first comparison and at the best run."""
    first, commands = found.runs[0], dict[str, str]()
    for each in found.verdicts[:1]:
        pair = (each.run, each.against) if each.word == "worse" else (each.against, each.run)
        commands[f"podline runs compare {' '.join(pair)} --why"] = "what the first loses, with examples"
    better = [verdict for verdict in found.verdicts if verdict.word == "better"]
    best = max(better, key=lambda verdict: abs(verdict.difference.value)).run if better else first
    commands[f"podline models promote {best} --dry-run"] = "whether it would become the champion"
    commands[f"podline models predict {best} photos/"] = "answers for a folder"
    return Code.of(commands)


def _caption(runs: Sequence[_Curves]) -> str:
    splits = sorted({line.split for run in runs for line in run.evaluations})
    judged = "Below the training loss, the loss in the evaluations during training"
    if _judged_by(runs) == "error":
        judged = "Error is the share of wrong guesses in the evaluations during training, on a logarithmic scale"
    return f"{judged} (evaluated: {', '.join(splits) or 'nothing'}); a cross is a state that annealing rejected."


def _chart(runs: Sequence[_Curves]) -> Svg:
    by = _judged_by(runs)
    alt = f"Training loss, {by} in evaluations and learning rate over epochs of {', '.join(run.label for run in runs)}."
    with chart("comparison", alt, 7.6, 7.2) as drawing:
        loss, judged, rate = drawing.axes(3, heights=(3, 3, 2))
        for place, run in enumerate(runs):
            style: dict[str, Any] = {
                "color": COLOURS[place % len(COLOURS)],
                "linestyle": "-" if place < len(COLOURS) else "--",
            }
            at = [line.epoch for line in run.steps]
            loss.plot(at, [line.loss for line in run.steps], linewidth=1.1, label=run.label, **style)
            rate.plot(at, [line.learning_rate for line in run.steps], **style)
            _evaluations(judged, run, by, style)
        loss.set_ylabel("training loss")
        judged.set_ylabel(f"{by} in evaluations")
        rate.set_ylabel("learning rate")
        rate.set_xlabel("epoch")
        rate.set_ylim(bottom=0)
        rate.set_xlim(left=0)
        if by == "error":
            judged.set_yscale("log")
            judged.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            judged.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
            judged.yaxis.set_minor_formatter(NullFormatter())
        drawing.figure.legend(*loss.get_legend_handles_labels(), loc="outside upper left", ncols=1)
    return drawing.svg


def _judged_by(runs: Sequence[_Curves]) -> str:
    """Return ``error`` if all runs logged an accuracy during training, else ``loss``."""
    known = [line.accuracy for run in runs for line in (*run.steps, *run.evaluations)]
    return "loss" if any(map(math.isnan, known)) else "error"


def _evaluations(axes: Axes, run: _Curves, by: str, style: dict[str, Any]) -> None:
    # Half an example stands for zero errors, since a logarithmic axis has no zero.
    points = [
        (line.step, line.epoch, line.loss if by == "loss" else max(1 - line.accuracy, 0.5 / line.examples))
        for line in run.evaluations
    ]
    axes.plot([epoch for _, epoch, _ in points], [height for *_, height in points], marker="o", ms=3, **style)
    crossed = [point for step, *point in points if step in run.rejected]
    if crossed:
        axes.scatter(*np.array(crossed).T, s=60, color=style["color"], marker="x", linewidths=1.6, zorder=3)
