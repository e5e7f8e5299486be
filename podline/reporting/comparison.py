"""A page about several runs: curves in one chart, figures, and the settings that differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from podline import figures
from podline.documents.completion import local_artifact, record_files
from podline.documents.metric import Metric
from podline.documents.metrics_log import (
    METRICS,
    AnnealingLine,
    EvaluationLine,
    MetricsLine,
    PlateauLine,
    StepsLine,
    read_metrics,
)
from podline.drawing.drawing import chart, png
from podline.inventory.catalogue import StoredRun, training_of
from podline.ledger.differences import NONE, rows
from podline.measures import shown
from podline.reporting import tables
from podline.reporting.charts import COLOURS
from podline.reporting.templates import TEMPLATES
from podline.store import digests
from podline.store.contract import Store

HTML, PNG = "comparison.html", "comparison.png"
_WIDTH, _HEIGHT = 7.6, 7.2
# A run whose name is followed by more than this many settings would be no label any more.
_NAMED_SETTINGS = 4

JudgedBy = Literal["error", "loss"]
"""The share of wrong guesses, where there are classes in all of the runs, else the loss."""


@dataclass(frozen=True)
class Compared:
    """One of the runs.

    Attributes:
        name: of the run.
        settings: all that its result depends on, as (path, text).
        lines: its ``metrics.jsonl``.
        metrics: the final evaluation's; empty if there is none yet.
        seconds: what training took; None if it is not finished.
    """

    name: str
    settings: Mapping[str, str]
    lines: Sequence[MetricsLine]
    metrics: Mapping[str, Metric]
    seconds: float | None

    @property
    def steps(self) -> list[StepsLine]:
        """Its stretches of training steps."""
        return [line for line in self.lines if isinstance(line, StepsLine)]

    @property
    def evaluations(self) -> list[EvaluationLine]:
        """Its evaluations during training."""
        return [line for line in self.lines if isinstance(line, EvaluationLine)]


class ComparisonPage(NamedTuple):
    """Where the page and the picture are: names in the store."""

    html: str
    png: str


def compare(store: Store, runs: Sequence[StoredRun]) -> ComparisonPage:
    """Writes one page and one picture about several runs, under ``comparisons/``.

    Raises:
        StoreError: a run has no metrics, or the page cannot be written.
        ArtifactError: a file of a run is damaged.
    """
    compared = [_gather(store, run) for run in runs]
    folder = f"comparisons/{digests.of_json([run.name for run in compared])[:12]}"
    store.publish_bytes(f"{folder}/{PNG}", png(lambda figure: _draw(figure, compared), _WIDTH, _HEIGHT), replace=True)
    store.publish_bytes(f"{folder}/{HTML}", _page(compared).encode(), replace=True)
    found = ComparisonPage(f"{folder}/{HTML}", f"{folder}/{PNG}")
    record_files(store, folder, "compare", found)
    return found


def _gather(store: Store, run: StoredRun) -> Compared:
    spec = training_of(store, run.name)
    evaluated, trained = run.stages.get("evaluate"), run.stages.get("train")
    scores = evaluated.result["metrics"] if evaluated else {}
    # The fingerprint tells data sets apart for a reader.
    others = spec.model_dump(exclude={"root", "recipe", "manifest_digest"})
    return Compared(
        name=run.name,
        settings=tables.in_words(spec.recipe.model_dump(mode="json") | others),
        lines=read_metrics(local_artifact(store, run.folder, "train", f"{run.folder}/{METRICS}")),
        metrics={key: Metric.model_validate(score) for key, score in scores.items()},
        seconds=trained.result["seconds"] if trained else None,
    )


def differing(runs: Sequence[Compared]) -> dict[str, list[str]]:
    """The settings that are not the same in all runs: by path, each run's; a dash where a run has none."""
    return {row.name: [*row.values] for row in rows("settings", [run.settings for run in runs])}


def labels(runs: Sequence[Compared]) -> list[str]:
    """What the runs are called in the legend: the name, and if they are few the settings in which they differ."""
    told = _told(runs)
    if not 0 < len(told) <= _NAMED_SETTINGS:
        return [run.name for run in runs]
    texts = [", ".join(column[place] for column in told.values() if column[place]) for place in range(len(runs))]
    return [f"{run.name} ({text})" if text else run.name for run, text in zip(runs, texts, strict=True)]


def _told(runs: Sequence[Compared]) -> dict[str, list[str]]:
    """What a legend tells of each run; a group of settings that some runs do not have at all is told by its name."""
    told: dict[str, list[str]] = {}
    for path, values in differing(runs).items():
        if NONE not in values:
            told[path] = [f"{path} {value}" for value in values]
        else:
            group = path.rpartition(".")[0] or path
            told[group] = ["" if value == NONE else group for value in values]
    return told


def _page(runs: Sequence[Compared]) -> str:
    names = [run.name for run in runs]
    judged = _judged_by(runs)
    alt = f"Training loss, {judged} in evaluations and learning rate over epochs of {', '.join(names)}"
    with chart("comparison", alt, _WIDTH, _HEIGHT) as drawing:
        _draw(drawing.figure, runs)
    return TEMPLATES.get_template("comparison.html").render(
        names=names,
        chart=drawing.svg,
        results=tables.by_run(names, _results(runs)),
        settings=tables.by_run(names, differing(runs)),
        judged_by=judged,
        splits=sorted({line.split for run in runs for line in run.evaluations}),
    )


def _results(runs: Sequence[Compared]) -> dict[str, list[str]]:
    """The figures: by what they are, each run's."""
    results = {
        f"{measure.label}, final": [
            figures.metric_text(measure.name, run.metrics[measure.name]) if measure.name in run.metrics else NONE
            for run in runs
        ]
        for measure in shown(dict.fromkeys(name for run in runs for name in run.metrics))
    }
    results["last evaluation in training"] = [_last_evaluation(run) for run in runs]
    results["steps"] = [figures.count(run.steps[-1].step) if run.steps else "0" for run in runs]
    results["epochs"] = [f"{run.steps[-1].epoch:.4g}" if run.steps else "0" for run in runs]
    results["training took"] = [NONE if run.seconds is None else figures.duration(run.seconds) for run in runs]
    decided = [_decisions(run) for run in runs]
    if any(decided):
        results["decisions"] = [text or NONE for text in decided]
    return results


def _last_evaluation(run: Compared) -> str:
    if not run.evaluations:
        return NONE
    last = run.evaluations[-1]
    right = "" if math.isnan(last.accuracy) else f"{figures.percent(last.accuracy)}, "
    return f"{right}loss {last.loss:.4f} ({last.split})"


def _decisions(run: Compared) -> str:
    states = [line for line in run.lines if isinstance(line, AnnealingLine)]
    rejected = sum(not line.accepted for line in states)
    lowered = sum(isinstance(line, PlateauLine) and line.lowered for line in run.lines)
    texts = [f"{rejected} of {len(states)} states rejected"] if states else []
    if any(isinstance(line, PlateauLine) for line in run.lines):
        texts.append(f"rate lowered {lowered} times")
    return ", ".join(texts)


def _draw(figure: Figure, runs: Sequence[Compared]) -> None:
    """Three charts over the epochs, one above the other, and a legend over all."""
    by = _judged_by(runs)
    loss, judged, rate = figure.subplots(3, 1, sharex=True, height_ratios=(3, 3, 2))
    for place, (run, label) in enumerate(zip(runs, labels(runs), strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        dashes = "-" if place < len(COLOURS) else "--"
        at = [line.epoch for line in run.steps]
        loss.plot(at, [line.loss for line in run.steps], color=colour, linestyle=dashes, linewidth=1.1, label=label)
        rate.plot(at, [line.learning_rate for line in run.steps], color=colour, linestyle=dashes)
        _curve(judged, run, by, colour, dashes)
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
    for axes in (loss, judged, rate):
        axes.patch.set_alpha(0)
    figure.legend(*loss.get_legend_handles_labels(), loc="outside upper left", ncols=1)


def _judged_by(runs: Sequence[Compared]) -> JudgedBy:
    """What the evaluations during training are compared by: what all of the runs have."""
    known = [line.accuracy for run in runs for line in (*run.steps, *run.evaluations)]
    return "loss" if any(map(math.isnan, known)) else "error"


def evaluated(run: Compared, by: JudgedBy) -> list[float]:
    """Of each evaluation of a run during training: its loss, or the share of wrong guesses."""
    if by == "loss":
        return [line.loss for line in run.evaluations]
    # Half an example stands for none: a logarithm has no zero.
    return [max(1 - line.accuracy, 0.5 / line.examples) for line in run.evaluations]


def _curve(axes: Axes, run: Compared, by: JudgedBy, colour: str, dashes: str) -> None:
    """The evaluations of a run; a cross marks a state that was rejected."""
    heights = evaluated(run, by)
    at = [line.epoch for line in run.evaluations]
    axes.plot(at, heights, color=colour, linestyle=dashes, marker="o", ms=3)
    rejected = {line.step for line in run.lines if isinstance(line, AnnealingLine) and not line.accepted}
    crossed = [
        (epoch, height)
        for line, epoch, height in zip(run.evaluations, at, heights, strict=True)
        if line.step in rejected
    ]
    if crossed:
        axes.scatter(*np.array(crossed).T, s=60, color=colour, marker="x", linewidths=1.6, zorder=3)
