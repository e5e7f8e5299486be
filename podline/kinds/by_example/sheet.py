"""Test examples with a run's answers, as pictures for the sheet."""

from __future__ import annotations

from typing import Any

import keras  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
import numpy.typing as npt

from podline.base.drawing.picture_sheet import PictureRow, SheetBlock, SheetPicture
from podline.base.figures import count, percent
from podline.base.progress import Reporter
from podline.contract.per_example import PerExample
from podline.data.reader import SplitReader, open_split
from podline.data.records import IMAGE
from podline.documents.manifest import TEST, Manifest
from podline.kinds.by_example.hooks import ExampleHooks
from podline.kinds.by_example.judging import answered, at_its_thresholds
from podline.kinds.by_example.measures import figure_of
from podline.recipes.measures import measure_named, metric_text
from podline.stages.tools import ShowSpec
from podline.store.contract import Store

RIGHT, WRONG = "#1a7f37", "#c0392b"
"""Colours of captions."""
_MISTAKE_ROWS = 2


def sheet_block(
    kind: ExampleHooks[Any], spec: ShowSpec, model: keras.Model, store: Store, manifest: Manifest, reporter: Reporter
) -> tuple[SheetBlock, int, int]:
    """Return the first test examples with a run's answers, then its most confident mistakes.

    Also return the numbers of judged and of correct test examples; both are 0 if answers are neither right nor wrong.
    """
    reader = open_split(store, spec.dataset_folder, manifest, TEST)
    answers: PerExample = answered(kind, spec.recipe, model, reader, manifest, reporter)
    answers = at_its_thresholds(kind, answers, store, f"runs/{spec.run}")
    examples, right, wide = len(answers.labels), answers.right, spec.examples
    rows = [PictureRow("the first", _pictures(kind, answers, np.arange(min(wide, examples)), reader, manifest))]
    mistakes = answers.surest_mistakes()[: _MISTAKE_ROWS * wide]
    for start in range(0, len(mistakes), wide):
        label = "most confident\nmistakes" if start == 0 else ""
        rows.append(PictureRow(label, _pictures(kind, answers, mistakes[start : start + wide], reader, manifest)))
    if right is None:
        measure = measure_named(kind.measure)
        figure = f"the {measure.label} on the whole split is {metric_text(measure.name, figure_of(measure, answers))}"
        return SheetBlock(f"Answers of {spec.run}", f"test examples with its answers; {figure}", rows), 0, 0
    correct = int(right.sum())
    share = f"{count(correct)} of {count(examples)} are right, {percent(correct / examples)}"
    about = f"test examples with its answers; {share}"
    return SheetBlock(f"Answers of {spec.run}", about, rows), examples, correct


def _pictures(
    kind: ExampleHooks[Any],
    answers: PerExample,
    records: npt.NDArray[np.int64],
    reader: SplitReader,
    manifest: Manifest,
) -> list[SheetPicture]:
    """Return records as pictures with the answer, and a wrong answer's truth, in a caption coloured by correctness."""
    shown = answers.at(records)
    images, words = reader.gather(records, (IMAGE,))[IMAGE], kind.words(shown, manifest)
    truths, right = kind.truths(shown.labels, manifest), shown.right
    if right is None:
        return [SheetPicture(image, f"{a}\nis {t}") for image, a, t in zip(images, words, truths, strict=True)]
    return [
        SheetPicture(image, f"✓ {a}", RIGHT) if correct else SheetPicture(image, f"✗ {a}\nis {t}", WRONG)
        for image, a, t, correct in zip(images, words, truths, right, strict=True)
    ]
