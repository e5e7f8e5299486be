"""The HTML page of a search: its verdict, its trials, and charts of the metric against each value."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, NullFormatter

from podline.base import figures
from podline.base.drawing.drawing import ACCENT, INK, MUTED, chart
from podline.base.drawing.svg import Svg
from podline.compare.settings import NONE
from podline.report.blocks import Block, Chart, Code, Fold, Grid, Items, Kicker, Standing, Table, Text, Title
from podline.report.document import document as page_of
from podline.search.spaces import Space
from podline.search.trials import SearchDocument, Trial
from podline.search.verdict import Verdict

_STYLES = {True: "better", False: "noise", None: "noise"}


def page(document: SearchDocument, verdict: Verdict, about: Sequence[str]) -> str:
    """Render a search as HTML."""
    spec, best = document.spec, verdict.best
    header: list[Block] = [
        Kicker([f"search over {', '.join(space.path for space in spec.spaces)}", *about]),
        Title(_text(spec.metric, best.value), f"validation {spec.metric} of trial {best.number}", spec.recipe.name),
        Standing("Verdict: ", verdict.text, style=_STYLES[verdict.better]),
    ]
    sections = [("Trials", [*_trials(document)]), ("The best values", [*_best(document, best)])]
    return page_of(f"{spec.recipe.name}: search", header, sections)


def _trials(document: SearchDocument) -> Iterator[Block]:
    metric, spaces = document.spec.metric, document.spec.spaces
    yield Grid(*(Chart(_chart(document, space), space.path) for space in spaces))
    rows = [
        {
            "trial": f"{trial.number}{'' if trial.number else ', default'}",
            metric: _text(metric, trial.value),
            **{space.path: str(trial.values[space.path]) for space in spaces},
            "evaluations": figures.count(len(trial.evaluations)),
            "took": figures.duration(trial.seconds),
            "run": trial.run or NONE,
            "state": trial.state,
        }
        for trial in document.trials
    ]
    yield Table.of(rows)
    if causes := [f"trial {trial.number}: {trial.cause}" for trial in document.trials if trial.cause]:
        yield Fold("Trials that did not complete", Items(causes))
    yield Text(
        f"Each trial is a run of the store. The {metric} is that of the data set's validation split, or of the "
        "examples that validation_share holds out of the training split, for the final state of the run; the "
        f"test split is not used. The {metric} of the best of many trials is too low on average: train another seed "
        "and evaluate it on the test split to measure the difference without this bias.",
        "note",
    )


def _best(document: SearchDocument, best: Trial) -> Iterator[Block]:
    root = shlex.quote(document.spec.root)
    yield Text("To evaluate the best trial's model on the test split:")
    yield Code(f"podline evaluate {best.run} --root {root}")
    if document.spec.recipe.validation_share and not document.spec.recipe.decides_by:
        yield Text("To train with the same values on the whole training split:")
        yield Code(f"podline train {best.run} --set validation_share=0 --root {root}")


def _chart(document: SearchDocument, space: Space) -> Svg:
    metric = document.spec.metric
    shown = [trial for trial in document.trials if trial.evaluations]
    values = [trial.values[space.path] for trial in shown]
    named = bool(space.choices) or not all(isinstance(value, int | float) for value in values)
    names = [*dict.fromkeys(map(str, (*space.choices, *values) if named else ()))]
    alt = f"The {metric} of each trial against {space.path}; the best is trial {document.complete[0].number}."
    with chart(f"search-{space.path}", alt, height=2.6) as drawing:
        (axes,) = drawing.axes()
        for trial, value in zip(shown, values, strict=True):
            complete = trial.value is not None
            place: Any = names.index(str(value)) if named else value
            best = trial is document.complete[0]
            axes.plot(
                [place],
                [min(trial.evaluations) if trial.value is None else trial.value],
                "o" if complete else "x",
                color=ACCENT if best else INK if complete else MUTED,
                markersize=8 if best else 5,
            )
        if named:
            axes.set_xticks(range(len(names)), names)
        elif space.log:
            # The recipe's own value may be 0, which a logarithmic scale cannot show.
            if min(values, default=1) > 0:
                axes.set_xscale("log")
            else:
                axes.set_xscale("symlog", linthresh=space.low)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(space.path)
        axes.set_ylabel(f"validation {metric}")
    return drawing.svg


def _text(metric: str, value: float | None) -> str:
    return NONE if value is None else figures.percent(value) if metric == "error" else f"{value:.4f}"
