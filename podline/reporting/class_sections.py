"""Sections of a classifier's report, and what its verdict says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from podline import figures
from podline.data.reader import open_split
from podline.documents.evaluation import Evaluation
from podline.measures import shown
from podline.reporting import charts, verdict
from podline.reporting.blocks import Block, Chart, Column, Fold, Grid, Heading, Picture, Pictures, Table, Text
from podline.reporting.facts import RunFacts
from podline.reporting.pictures import data_uri
from podline.reporting.quoted import joined
from podline.reporting.run_sections import MOST_CLASSES
from podline.reporting.sections import section

# Pairs of classes that are listed as the most frequent confusions, and classes that are listed as the weakest.
_CONFUSIONS = _WEAKEST = 10


def headline(run: RunFacts) -> verdict.Headline:
    """Return what the top of the page says of the accuracy."""
    evaluation: Evaluation = run.evaluation
    judged = (
        ""
        if evaluation.better_than_guessing
        else " The result cannot be told from guessing: look for what is wrong before anything else."
    )
    return verdict.Headline(
        about=f"of the {evaluation.split} split of {evaluation.dataset} labelled correctly",
        guessing=joined(
            f"Always naming the most frequent class of the {evaluation.split} split would be right for ",
            run.fig.metric("evaluation.guessing", "top1"),
            ", the same network before training for ",
            run.fig.metric("evaluation.untrained.metrics.top1"),
            f".{judged} On ",
            run.fig("evaluation.seen.examples"),
            " examples that it was trained on the model is right for ",
            run.fig.metric("evaluation.seen.metrics.top1"),
            ".",
        ),
        tiles=[
            verdict.metric_tile(run, measure.name)
            for measure in shown(evaluation.trained.metrics)
            if measure.name != evaluation.measure
        ],
    )


@section("Figures", "classification")
def metrics(run: RunFacts) -> Iterator[Block]:
    """Show every measure of the trained model, of the untrained one, and on examples that it was trained on."""
    evaluation: Evaluation = run.evaluation
    sides = {
        f"trained, {evaluation.split} split": "trained",
        f"untrained, {evaluation.split} split": "untrained",
        "trained, examples it has seen": "seen",
    }
    if evaluation.over_views:
        sides[f"trained, mean over {evaluation.views} views of each image"] = "over_views"
    rows = [
        {"": measure.label}
        | {title: run.fig.metric(f"evaluation.{side}.metrics.{measure.name}") for title, side in sides.items()}
        for measure in shown(evaluation.trained.metrics)
    ]
    rows += [
        {"": what} | {title: run.fig(f"evaluation.{side}.{key}") for title, side in sides.items()}
        for what, key in (("right", "correct"), ("examples", "examples"))
    ]
    yield Table.of(rows)
    yield Text(
        "Intervals are 95 % intervals: Wilson’s for shares, the normal one for other means, the bootstrap’s for other "
        "measures. evaluation.json has every figure in full precision.",
        "note",
    )


@section("Classes", "classification")
def classes(run: RunFacts) -> Iterator[Block]:
    """Show the confusion matrix and each class's accuracy; of many classes the weakest."""
    evaluation: Evaluation = run.evaluation
    count = len(evaluation.class_names)
    many = count > charts.MANY_CLASSES
    caption = "A row is a label, a column a prediction; the stronger the colour, the larger the share of the row."
    if count > charts.MATRIX_ROWS:
        caption += f" Each stands for {count / charts.MATRIX_ROWS:.3g} classes that follow each other."
    yield Grid(
        Chart(charts.confusion(evaluation), "Confusion matrix", caption),
        Column(
            Heading("Most frequent confusions"),
            _confusions(run) or Text("None: every example is labelled correctly."),
            *([Heading("The weakest classes"), _classes(run, _weakest(evaluation)[:_WEAKEST])] if many else []),
        ),
    )
    if not many:
        yield Fold("The matrix as a table", _matrix(run))
    top1 = evaluation.trained.metrics["top1"].value
    listed = _weakest(evaluation)[:MOST_CLASSES] if count > MOST_CLASSES else range(count)
    accuracies = Grid(
        Chart(
            charts.per_class(evaluation.per_class, top1, MOST_CLASSES),
            caption="The dashed line is the accuracy over all classes.",
        ),
        _classes(run, listed),
    )
    if many:
        which = f"the {MOST_CLASSES} weakest of {count} classes" if count > MOST_CLASSES else f"each of {count} classes"
        yield Fold(f"Accuracy of {which}", accuracies)
    else:
        yield Heading("Accuracy of each class")
        yield accuracies


def _weakest(evaluation: Evaluation) -> list[int]:
    """Return the classes that have examples, the one with the lowest accuracy first."""
    found = evaluation.per_class
    judged = [label for label, scored in enumerate(found) if scored.examples]
    return sorted(judged, key=lambda label: found[label].accuracy.value)


def _classes(run: RunFacts, labels: Iterable[int]) -> Table:
    """Return how many examples classes have, how many are right, how often each was named, its accuracy."""
    fig = run.fig
    return Table.of(
        {
            "class": run.evaluation.per_class[label].name,
            "label": str(label),
            "examples": fig(f"{place}.examples"),
            "right": fig(f"{place}.correct"),
            "named": fig(f"{place}.predicted"),
            "accuracy": fig.value(f"{place}.accuracy", "top1"),
            "95 % interval": fig.interval(f"{place}.accuracy", "top1"),
        }
        for label in labels
        for place in (f"evaluation.per_class.{label}",)
    )


def _matrix(run: RunFacts) -> Table:
    names = run.evaluation.class_names
    return Table.of(
        {"label": name} | {other: run.fig(f"evaluation.confusion.{label}.{place}") for place, other in enumerate(names)}
        for label, name in enumerate(names)
    )


def _confusions(run: RunFacts) -> Table:
    evaluation: Evaluation = run.evaluation
    names = evaluation.class_names

    def place_of(place: int, label: int, prediction: int) -> str:
        return f"confused.{place}.2" if evaluation.confused else f"confusion.{label}.{prediction}"

    rows = [
        {
            "label": names[label],
            "taken for": names[prediction],
            "times": run.fig(f"evaluation.{place_of(place, label, prediction)}"),
            "of its class": figures.percent(times / evaluation.per_class[label].examples),
        }
        for place, (label, prediction, times) in enumerate(evaluation.confusions[:_CONFUSIONS])
    ]
    return Table.of(rows, words=2)


@section("Calibration", "classification")
def calibration(run: RunFacts) -> Iterator[Block]:
    """Show how often guesses of some confidence are right."""
    evaluation: Evaluation = run.evaluation
    bins = Table.of(
        {
            "confidence in": f"{100 * entry.low:.0f}–{100 * entry.high:.0f} %",
            "examples": run.fig(f"evaluation.calibration.{place}.examples"),
            "mean confidence": run.fig(f"evaluation.calibration.{place}.confidence", figures.percent),
            "right": run.fig(f"evaluation.calibration.{place}.accuracy", figures.percent),
        }
        for place, entry in enumerate(evaluation.calibration)
        if entry.examples
    )
    error = evaluation.trained.metrics["calibration_error"].value
    yield Grid(
        Chart(charts.calibration(evaluation.calibration, error)),
        Column(
            Text(
                "Of the guesses made with some confidence, how many are right? On the dashed line confidence is what "
                "it says; below it the model is too sure of itself, above it too modest. A dot’s area is its share of "
                "the examples."
            ),
            Fold("The bins as a table", bins),
        ),
    )


@section("The most confident mistakes", "classification")
def mistakes(run: RunFacts) -> Iterator[Block]:
    """Show the images that the model was most confident about and wrong."""
    evaluation: Evaluation = run.evaluation
    if not evaluation.mistakes:
        yield Text("None: every example is labelled correctly.")
        return
    reader = open_split(run.store, run.spec.dataset_folder, run.manifest, evaluation.split)
    records = np.array([mistake.record for mistake in evaluation.mistakes], np.int64)
    names, found = evaluation.class_names, []
    for mistake, image in zip(evaluation.mistakes, reader.gather(records, ["image"])["image"], strict=True):
        label, prediction, record = names[mistake.label], names[mistake.prediction], figures.count(mistake.record)
        alt = f"Record {record} of the {evaluation.split} split, labelled {label}, taken for {prediction}"
        given = figures.percent(mistake.label_probability)
        found.append(
            Picture(
                [(data_uri(image), alt)],
                f"{prediction} {figures.percent(mistake.confidence)}",
                [f"label: {label} {given}", f"record {record}"],
            )
        )
    yield Pictures(found)
