"""Sections and verdict of a classifier's report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from podline.base import figures
from podline.base.plurals import first_few, plural
from podline.kinds.by_example.sections import INTERVALS, Wrong, figures_table, pictures_of, sides_of
from podline.kinds.classification import charts
from podline.kinds.classification.document import Evaluation, Figures
from podline.recipes import measures
from podline.report.blocks import Block, Chart, Column, Fold, Grid, Heading, Table, Text
from podline.report.facts import RunFacts
from podline.report.run_sections import MOST_CLASSES
from podline.report.sections import section

# Number of class pairs in the list of frequent confusions, and of classes in the list of weakest classes.
_CONFUSIONS = _WEAKEST = 10
_CALIBRATED = 0.02  # largest difference of mean confidence and accuracy that counts as agreement


@section("Figures")
def metrics(run: RunFacts) -> Iterator[Block]:
    """Show every measure, and the number of right answers, of the trained and the untrained model."""
    sides = sides_of(run)
    right = {title: figures.count(side.correct) for title, side in sides.items() if isinstance(side, Figures)}
    yield figures_table(sides, {"": "right"} | right)
    yield Text(INTERVALS, "note")


@section("Classes")
def classes(run: RunFacts) -> Iterator[Block]:
    """Show the confusion matrix and the accuracy of each class with examples; of very many classes, the weakest."""
    evaluation = Evaluation.of(run.evaluation)
    judged = [label for label, found in enumerate(evaluation.per_class) if found.examples]
    count = len(evaluation.class_names)
    many = count > charts.MANY_CLASSES
    caption = "A row is a label, a column a prediction; the stronger the colour, the larger the share of the row."
    if count > charts.MATRIX_ROWS:
        caption += f" Each row and column stands for {count / charts.MATRIX_ROWS:.3g} neighbouring classes."
    yield Grid(
        Chart(charts.confusion(evaluation), "Confusion matrix", caption),
        Column(
            Heading("Most frequent confusions"),
            _confusions(evaluation) or Text("None: every example is labelled correctly."),
            *([Heading("The weakest classes"), _classes(evaluation, _weakest(evaluation, judged))] if many else []),
        ),
    )
    if not many:
        yield Fold("The matrix as a table", _matrix(evaluation))
    top1 = evaluation.trained.metrics["top1"].value
    shares = {found.name: found.accuracy for found in evaluation.per_class if found.examples}
    ordered = sorted(judged, key=lambda label: evaluation.per_class[label].accuracy.value)
    listed = ordered[:MOST_CLASSES][::-1]  # in the order of the chart
    accuracies = Grid(
        Chart(
            charts.per_class(shares, top1, MOST_CLASSES, "Accuracy of each class"),
            caption="The dashed line is the accuracy over all classes.",
        ),
        _classes(evaluation, listed),
    )
    if many:
        fewer = f"the {MOST_CLASSES} weakest of" if len(judged) > MOST_CLASSES else "each of"
        yield Fold(f"Accuracy of {fewer} {len(judged)} classes", accuracies)
    else:
        yield Heading("Accuracy of each class")
        yield accuracies
    if without := [found.name for found in evaluation.per_class if not found.examples]:
        names = f"{plural(len(without), 'class', 'classes')}, {first_few(without, MOST_CLASSES)}"
        yield Text(f"Without an image in the {evaluation.split} split: {names}.")


def _weakest(evaluation: Evaluation, judged: Iterable[int]) -> list[int]:
    """Return the numbers of the weakest classes: those whose accuracy's interval has the lowest upper ends."""
    found = evaluation.per_class
    return sorted(judged, key=lambda label: (found[label].accuracy.high, found[label].accuracy.value))[:_WEAKEST]


def _classes(evaluation: Evaluation, labels: Iterable[int]) -> Table:
    """Return a table by class: number of examples, of correct answers and of predictions, and the accuracy."""
    return Table.of(
        {
            "class": found.name,
            "label": str(label),
            "examples": figures.count(found.examples),
            "right": figures.count(found.correct),
            "named": figures.count(found.predicted),
            "accuracy": figures.percent(found.accuracy.value),
            "95 % interval": measures.interval_text("top1", found.accuracy),
        }
        for label in labels
        for found in (evaluation.per_class[label],)
    )


def _matrix(evaluation: Evaluation) -> Table:
    rows = zip(evaluation.class_names, evaluation.confusion, strict=True)
    return Table(["label", *evaluation.class_names], [[name, *map(figures.count, row)] for name, row in rows])


def _confusions(evaluation: Evaluation) -> Table:
    names = evaluation.class_names
    rows = [
        {
            "label": names[label],
            "predicted as": names[prediction],
            "times": figures.count(times),
            "share of the label": figures.percent(times / evaluation.per_class[label].examples),
        }
        for label, prediction, times in evaluation.confusions[:_CONFUSIONS]
    ]
    return Table.of(rows, words=2)


@section("Calibration")
def calibration(run: RunFacts) -> Iterator[Block]:
    """Show the reliability diagram: the accuracy of the predictions by their confidence."""
    evaluation = Evaluation.of(run.evaluation)
    bins = Table.of(
        {
            "confidence in": f"{100 * entry.low:.0f}–{100 * entry.high:.0f} %",
            "examples": figures.count(entry.examples),
            "mean confidence": figures.percent(entry.confidence),
            "right": figures.percent(entry.accuracy),
        }
        for entry in evaluation.calibration
        if entry.examples
    )
    error = evaluation.trained.metrics["calibration_error"].value
    yield Text(_calibrated(evaluation, smoothed=bool(getattr(run.recipe.task, "label_smoothing", 0.0))))
    yield Grid(
        Chart(charts.calibration(evaluation.calibration, error)),
        Column(
            Text(
                "The share of correct predictions by their confidence. On the dashed line accuracy equals confidence; "
                "below the line the model is too confident, above it too cautious. A dot’s area is the share of "
                "examples with this confidence."
            ),
            Fold("The bins as a table", bins),
        ),
    )


def _calibrated(evaluation: Evaluation, *, smoothed: bool) -> str:
    """Return a sentence: whether the model is too confident or too cautious on average, then with a remedy."""
    bins = evaluation.calibration
    excess = sum(entry.examples * (entry.confidence - entry.accuracy) for entry in bins if entry.examples)
    excess /= max(1, sum(entry.examples for entry in bins))
    if abs(excess) < _CALIBRATED:
        return "On average, confidence and accuracy agree."
    points = f"by {100 * abs(excess):.1f} points"
    if excess > 0:
        return f"The model is too confident, {points}: more data, augmentation or label smoothing help."
    why = "; label smoothing does that" if smoothed else "; more training helps"
    return f"The model is too cautious, {points}{why}. The order in which it ranks classes is not affected."


@section("The most confident mistakes")
def mistakes(run: RunFacts) -> Iterator[Block]:
    """Show the images of the most confident mistakes, or that there are none."""
    evaluation = Evaluation.of(run.evaluation)
    names = evaluation.class_names
    wrong = [
        Wrong(
            mistake.record,
            f"labelled {names[mistake.label]}, predicted as {names[mistake.prediction]}",
            f"{names[mistake.prediction]} {figures.percent(mistake.confidence)}",
            f"label: {names[mistake.label]} {figures.percent(mistake.label_probability)}",
        )
        for mistake in evaluation.mistakes
    ]
    yield from pictures_of(run, wrong) if wrong else [Text("None: every example is labelled correctly.")]
