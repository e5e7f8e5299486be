"""docs/how-to/parts.md's measure, in an installed package, and measures that cannot be."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from ledger_entries import night
from support.extending import code_of, install
from support.guessed import guesses_of

from podline.commands.runs import runs_group
from podline.documents.intervals import wilson_interval
from podline.kinds.by_example.estimate import Estimate
from podline.kinds.by_example.measures import figures_of, value_of
from podline.kinds.classification.guesses import Guesses
from podline.ledger.ledger import publish
from podline.recipes import measures
from podline.recipes.measures import SHIPPED, Measure
from podline.recipes.parts import Loaded
from podline.store.opening import open_store

LABELS = np.array([0, 0, 0, 1, 1, 2])
SAID = guesses_of(LABELS, np.array([0, 0, 1, 1, 0, 1]))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, whose measures this process knows."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    measures.loaded.cache_clear()
    yield tmp_path / "site"
    measures.loaded.cache_clear()


def test_a_measure_of_an_installed_package_has_its_value_and_an_interval(site: Path) -> None:
    code, toml = (code_of("## A measure", language) for language in ("python", "toml"))
    install(site, {"my_measures": code}, toml)
    page = measures.known()
    # scikit-learn's f1_score(LABELS, predictions, average=None) gives 0.667, 0.4 and 0.
    figure = figures_of(SAID, "classification", 3)["macro_f1"]
    assert page["macro_f1"].label == "macro-F1"
    assert figure.value == pytest.approx((2 / 3 + 2 / 5 + 0) / 3)
    assert 0 <= figure.low < figure.value < figure.high <= 1
    # One of each example is their mean, with Wilson's interval.
    logits = np.array([[4, 3, 2, 1], [1, 2, 3, 4], [2, 1, 4, 3], [3, 4, 1, 2]], np.float32)
    found = Guesses.of_logits(logits, np.array([0, 0, 0, 0]))
    assert figures_of(found, "classification", 4)["top3"] == wilson_interval(3, 4)
    assert "top3" not in figures_of(SAID, "classification", 3)
    assert found.probabilities[0] == pytest.approx(np.exp(logits[0]) / np.exp(logits[0]).sum(), abs=1e-3)
    assert found.label_probabilities == pytest.approx(found.probabilities[:, 0], abs=1e-3)
    assert value_of(page["top3"], found) == 0.75
    many = Guesses.of_logits(np.tile(np.arange(200, dtype=np.float32), (2, 1)), np.array([199, 0]))
    assert (many.probabilities.shape, many.ranks.tolist()) == ((2, 0), [0, 199]), "of many classes, ranks alone"


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda _: float("nan"), "gives nan, expected a finite number"),
        (lambda _: Estimate(float("nan"), np.zeros(6), 1), "gives nan, expected a finite number"),
        (lambda _: [0.5] * 5, r"shape \(5,\).*of 6"),
        (lambda _: sys.exit("no licence"), "SystemExit: no licence"),
    ],
)
def test_one_that_gives_no_number_is_named_and_left_out_of_an_evaluation(
    monkeypatch: pytest.MonkeyPatch, compute: Any, message: str
) -> None:
    odd, problems = Measure("odd", "odd", compute=compute), list[str]()
    monkeypatch.setattr(measures, "loaded", lambda: Loaded({**{each.name: each for each in SHIPPED}, "odd": odd}, ()))
    assert set(figures_of(SAID, "classification", 3, problems.append)) == {"top1", "loss", "calibration_error"}
    assert re.search(f"^measure odd.*{message}", problems[0])


def test_one_that_cannot_be_loaded_hides_no_other(site: Path, tmp_path: Path) -> None:
    toml = '[project.entry-points."podline.measures"]\nbroken = "broken_measures:BROKEN"\n'
    install(site, {"broken_measures": "raise OSError('no licence')"}, toml)
    assert list(measures.known()) == [measure.name for measure in measures.SHIPPED]
    assert "top1" in figures_of(SAID, "classification", 3)
    [problem] = measures.loaded().problems
    assert problem == "measure broken (broken_measures:BROKEN of broken_measures): OSError: no licence"
    publish(open_store(tmp_path / "root"), night(0))
    listed = CliRunner().invoke(runs_group, ["list", "--root", str(tmp_path / "root")])
    assert (listed.exit_code, "accuracy 80.0 %" in listed.stdout) == (0, True)
    assert "broken_measures:BROKEN" in listed.stderr
