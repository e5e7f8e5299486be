"""The report's headline, its table of figures and its example pictures, for kinds that answer images separately."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from podline.base import figures
from podline.data.reader import open_split
from podline.data.versions.record_names import RecordNames
from podline.kinds.by_example.document import ImageEvaluation, ImageFigures
from podline.recipes import measures
from podline.recipes.measures import shown
from podline.report import verdict
from podline.report.blocks import Block, Code, Picture, Pictures, Table, Text
from podline.report.facts import RunFacts
from podline.report.kind_report import Headline
from podline.report.pictures import data_uri
from podline.report.sections import section


def headline(run: RunFacts, about: str, guess: str) -> Headline:
    """Return the main measure for the top of the page; ``about`` and ``guess`` are attributes of ``ExampleHooks``."""
    found = _evaluation(run)
    guessing, untrained, seen = (
        measures.metric_text(found.measure, metric)
        for metric in (found.guessing, *(side.metrics[found.measure] for side in (found.untrained, found.seen)))
    )
    judged = "" if found.better_than_guessing else " The result is not better than guessing: find the cause first."
    return Headline(
        about=about.format(split=found.split, dataset=found.dataset),
        guessing=(
            f"{guess} {guessing}. The network with random weights has {untrained}.{judged} On "
            f"{figures.count(found.seen.examples)} training examples the model has {seen}."
        ),
        tiles=[
            verdict.metric_tile(run, each.name) for each in shown(found.trained.metrics) if each.name != found.measure
        ],
    )


def _evaluation(run: RunFacts) -> ImageEvaluation[ImageFigures]:
    return cast("ImageEvaluation[ImageFigures]", run.evaluation)  # as that of every ExampleKind


@section("Figures")
def metrics(run: RunFacts) -> Iterator[Block]:
    """Show every measure of the trained and the untrained model, and of the trained model on training examples."""
    yield figures_table(sides_of(run))
    yield Text(INTERVALS, "note")


INTERVALS = (
    "Intervals are 95 % intervals: Wilson’s for shares, the normal interval for other means, the bootstrap for other "
    "measures. evaluation.json has every figure in full precision."
)


def sides_of(run: RunFacts) -> dict[str, ImageFigures]:
    """Return the figures of each column: trained, untrained, on training examples, averaged over views."""
    found = _evaluation(run)
    sides = {
        f"trained, {found.split} split": found.trained,
        f"untrained, {found.split} split": found.untrained,
        "trained, examples it has seen": found.seen,
    }
    if found.over_views:
        sides[f"trained, mean over {found.views} views of each image"] = found.over_views
    return sides


def figures_table(sides: Mapping[str, ImageFigures], *further: dict[str, str]) -> Table:
    """Return every measure of several models or splits, one column each.

    Args:
        sides: the figures by column title.
        further: rows to insert before the last row, which has the numbers of examples.
    """
    rows = [
        {"": measure.label}
        | {title: measures.metric_text(measure.name, side.metrics[measure.name]) for title, side in sides.items()}
        for measure in shown(next(iter(sides.values())).metrics)
    ]
    return Table.of([*rows, *further, {"": "examples"} | {t: figures.count(s.examples) for t, s in sides.items()}])


class Wrong(NamedTuple):
    """A wrong answer: the example's position in the split; the picture's alternative text, caption and second line."""

    record: int
    alt: str
    caption: str
    line: str


def pictures_of(run: RunFacts, wrong: Sequence[Wrong]) -> Iterator[Block]:
    """Yield pictures of wrongly answered examples with their names or numbers, and how to correct labels."""
    split = run.evaluation.split
    reader, found = open_split(run.store, run.spec.dataset_folder, run.manifest, split), list[Picture]()
    records = np.array([each.record for each in wrong], np.int64)
    images = reader.gather(records, ["image"])["image"]
    names = RecordNames(run.store, run.manifest).facts(split, records).names
    for each, image, name in zip(wrong, images, names, strict=True):
        record = figures.count(each.record)
        shown_as = (data_uri(image), f"Record {record} of the {split} split, {each.alt}")
        found.append(Picture([shown_as], each.caption, [each.line, name or f"record {record}"]))
    yield Pictures(found)
    if names[0] and run.manifest.class_names and "." in run.manifest.dataset:  # a user's own images
        name, words = run.manifest.dataset, shlex.quote(names[0])
        yield Text("Names are file names in the source. To correct a label, or leave out an image (--drop):", "note")
        yield Code(f"podline data correct {name} --record {words} --label CLASS")
