"""Kinds with one answer per image: a single number as measure, targets without text, empty classes, damage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.guessed import guesses_of

from podline.base.arrays import Array
from podline.base.errors import ArtifactError
from podline.contract.objective import Objective
from podline.kinds.by_example.answered import Answered
from podline.kinds.by_example.kind import ValueKind
from podline.kinds.by_example.measures import figures_of, gains_of
from podline.kinds.classification import sections
from podline.kinds.classification.document import Evaluation, Figures
from podline.recipes import measures
from podline.recipes.kind_table import facts_named
from podline.recipes.measures import Measure
from podline.recipes.parts import Loaded
from podline.recipes.settings import Recipe
from podline.recipes.targets import Targets
from podline.report.facts import RunFacts
from podline.stages.tools import PicturePrediction
from podline.store.folder import FolderStore

RECIPE, MANIFEST = cast(Recipe, None), cast(Any, SimpleNamespace(class_names=()))


class Spots(ValueKind):
    """Two numbers for each image."""

    target = "spot"

    def objective(self, recipe: Recipe, manifest: Any) -> Objective:
        raise NotImplementedError

    def decoded(self, outputs: Array, recipe: Recipe) -> Array:
        return outputs

    def guesses(self, labels: Array) -> Array:
        return np.broadcast_to(labels.mean(axis=0), labels.shape)


@pytest.fixture
def spots(monkeypatch: pytest.MonkeyPatch) -> Spots:
    """The kind, whose main measure is a single number."""
    single = Measure("top1", "sum", compute=lambda answers: float(answers.answers.sum()))
    monkeypatch.setattr(measures, "loaded", lambda: Loaded({"top1": single}, ()))
    return Spots(replace(facts_named("classification"), targets=Targets()))


@pytest.mark.parametrize("count", [1, 3])
def test_an_example_has_no_gain_in_a_single_number_and_all_are_lost_in_one_order(spots: Spots, count: int) -> None:
    before, after = (Answered(np.zeros((count, 2)), np.full((count, 2), value)) for value in (1.0, 0.0))
    assert gains_of(measures.measure_named("top1"), before, after).size == 0
    assert spots.lost_order(before, after).tolist() == [0.0] * count


def test_targets_without_text_are_shown_as_python_writes_them(spots: Spots) -> None:
    assert spots.truths(np.array([[1.0, 2.0], [3.0, 4.0]]), MANIFEST) == ["[1.0, 2.0]", "[3.0, 4.0]"]
    picture = PicturePrediction(file="a.png", width=4, height=4)
    found = spots.prediction(picture, np.array([1.5, 2.0]), RECIPE, MANIFEST, np.empty(0))
    assert found.line() == "a.png: [1.5, 2.0]"


def test_classes_without_test_images_are_not_the_weakest() -> None:
    names, guesses = ("a", "b", "c"), guesses_of(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
    figures = Figures(examples=4, correct=3, metrics=figures_of(guesses, "classification", 3))
    fields: Any = dict.fromkeys(("run", "dataset", "fingerprint", "weights_sha256"), "")
    evaluation = Evaluation(
        **fields,
        split="test",
        **dict.fromkeys(("trained", "untrained", "seen"), figures),
        guessing=figures.metrics["top1"],
        better_than_guessing=True,
        class_names=names,
        per_class=guesses.per_class(names),
        confusion=guesses.confusion(3),
        calibration=guesses.calibration(),
        mistakes=guesses.mistakes(),
    )
    blocks: Sequence[Any] = list(sections.classes.blocks(cast(RunFacts, SimpleNamespace(evaluation=evaluation))))
    assert blocks[-1].text == "Without an image in the test split: 1 class, c."
    [chart, table] = blocks[-2].blocks
    assert "from b (100.0 %) down to a (50.0 %)" in str(chart.svg)
    assert [row[0] for row in table.rows] == ["b", "a"]


def test_any_damaged_byte_of_answers_is_an_error_of_the_file(tmp_path: Path) -> None:
    content, store = Answered(np.arange(99.0), np.arange(99.0)).to_bytes(), FolderStore(tmp_path)
    for place in range(60, 300, 9):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        store.publish_bytes("runs/r/answers.npz", bytes(damaged), replace=True)
        with pytest.raises(ArtifactError, match=r"answers\.npz holds no answers .*; evaluate the run again"):
            Answered.read(store, "runs/r")
