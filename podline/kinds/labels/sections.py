"""Sections and verdict of the report on a model of several labels."""

from __future__ import annotations

from collections.abc import Iterator

from podline.base import figures
from podline.base.plurals import first_few, plural
from podline.documents.manifest import TRAINING
from podline.kinds.by_example.sections import Wrong, figures_table, pictures_of, sides_of
from podline.kinds.classification import charts
from podline.kinds.labels.document import LabelFigures, LabelsEvaluation
from podline.recipes import measures
from podline.report.blocks import Block, Chart, Column, Fold, Grid, Heading, Table, Text
from podline.report.facts import RunFacts
from podline.report.run_sections import MOST_CLASSES
from podline.report.sections import section

_PAIRS = 10


@section("Figures")
def metrics(run: RunFacts) -> Iterator[Block]:
    """Show every measure of the trained and the untrained model, and on training examples."""
    found = LabelsEvaluation.of(run.evaluation)
    yield figures_table(sides_of(run))
    where = (
        "images that the model was trained on, since none were held out (validation_share)"
        if found.thresholds_on == TRAINING
        else "images of the validation split"
        if run.manifest.has_validation
        else "images held out of the training split"
    )
    yield Text(
        "mAP is the mean of the labels’ average precision and needs no threshold. A label is predicted if its "
        "probability reaches the label’s threshold, which has the highest F1 on "
        f"{figures.count(found.threshold_examples)} {where}. Intervals are 95 % intervals: the infinitesimal jackknife "
        "over images for mAP and F1, Wilson’s for shares, the normal interval for the loss.",
        "note",
    )


@section("Labels")
def labels(run: RunFacts) -> Iterator[Block]:
    """Show each label's average precision and F1; of many labels only the weakest."""
    found = LabelsEvaluation.of(run.evaluation)
    judged = {label.name: label.ap for label in found.labels if label.ap is not None}
    weakest = sorted(
        (label for label in found.labels if label.ap is not None), key=lambda label: label.ap.value if label.ap else 0
    )
    mean = found.trained.metrics["map"].value
    chart = charts.per_class(judged, mean, MOST_CLASSES, "Average precision of each label")
    yield Grid(
        Chart(chart, caption="Average precision of each label; the dashed line is mAP."),
        Column(Heading("Labels predicted wrongly for images of another label"), _beside(found) or Text("None.")),
    )
    which = "the weakest" if len(weakest) > MOST_CLASSES else "each label"
    yield Fold(f"Figures of {which}", Table.of(map(_row, weakest[:MOST_CLASSES])))
    if never := [label.name for label in found.labels if label.positives and not label.named]:
        yield Text(f"Never predicted, though some images have them: {_some(never)}.", "warning")
    if found.unjudged:
        yield Text(
            f"mAP and macro F1 leave out {_some(found.unjudged)}: no image of the {found.split} split has them.",
        )


def _some(names: tuple[str, ...] | list[str]) -> str:
    return f"{plural(len(names), 'label')}, {first_few(names, MOST_CLASSES)}"


def _row(label: LabelFigures) -> dict[str, str]:
    ap, f1 = (measures.metric_text("map", metric) if metric else "" for metric in (label.ap, label.f1))
    return {
        "label": label.name,
        "examples": figures.count(label.positives),
        "predicted": figures.count(label.named),
        "right": figures.count(label.right),
        "AP": ap,
        "F1": f1,
        "threshold": figures.percent(label.threshold) + ("" if label.own_threshold else " (shared)"),
    }


def _beside(found: LabelsEvaluation) -> Table:
    names = found.class_names
    return Table.of(
        (
            {
                "images with": names[label],
                "wrongly predicted": names[other],
                "times": figures.count(times),
                "share of these images": figures.percent(times / found.labels[label].positives),
            }
            for label, other, times in found.wrongly_beside[:_PAIRS]
        ),
        words=2,
    )


@section("The most confident mistakes")
def mistakes(run: RunFacts) -> Iterator[Block]:
    """Show the images with the most confident mistakes, or that there are none."""
    found = LabelsEvaluation.of(run.evaluation)
    names = found.class_names
    wrong = [
        Wrong(
            mistake.record,
            f"{names[mistake.label]} {'wrongly predicted' if mistake.named else 'missed'}",
            f"{'wrongly predicted' if mistake.named else 'missed'}: {names[mistake.label]}",
            f"probability {figures.percent(mistake.probability)}",
        )
        for mistake in found.mistakes
    ]
    yield from pictures_of(run, wrong) if wrong else [Text("None: every label of every example is correct.")]
