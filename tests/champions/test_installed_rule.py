"""docs/how-to/parts.md as its reader would follow it: a package with a rule of promotion."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.extending import code_of, install
from support.guessed import guesses_of

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.champions.rules import checks_of
from podline.contract.rules import Compared, ModelCost
from podline.kinds.classification.guesses import Guesses
from podline.recipes.promotion_settings import PromotionSettings
from podline.recipes.settings import ModelSettings, Recipe
from podline.stages.from_recipe import promotion_spec
from podline.stages.specs import PromoteSpec

HEADING = "## A rule of promotion"
COSTS = (ModelCost(1, 1), ModelCost(1, 1))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the page's package, for this process."""
    folder = install(
        tmp_path_factory.mktemp("installed"), {"my_rules": code_of(HEADING, "python")}, code_of(HEADING, "toml")
    )
    with pytest.MonkeyPatch.context() as installed:
        installed.syspath_prepend(folder)
        yield folder
    sys.modules.pop("my_rules", None)


def guesses(seed: int, confidence: float) -> Guesses:
    """Draw guesses of which three of ten are wrong, with this confidence."""
    labels = np.zeros(400, np.int64)
    wrong = np.random.default_rng(seed).random(400) < 0.3
    return replace(guesses_of(labels, wrong.astype(np.int64)), confidences=np.where(wrong, confidence, 0.7))


def test_it_refuses_a_candidate_by_its_name(package: Path) -> None:
    modest, boastful = guesses(0, 0.6), guesses(1, 0.99)
    settings = PromotionSettings()
    for candidate, refused in ((guesses(2, 0.6), []), (boastful, ["sure_mistakes"])):
        checks = checks_of(Compared("classification", [modest], candidate, ("a", "b"), COSTS), settings)
        [own] = [check for check in checks if check.rule == "sure_mistakes"]
        assert [check.rule for check in checks if check.refused] == refused
    assert own.message == (
        "free of sure mistakes: 67.8 % vs 100.0 % of the reference, \N{MINUS SIGN}32.2 points: more than seeds usually "
        "do, by the assumed spread between seeds (promoted up to \N{MINUS SIGN}5.1, refused from "
        f"\N{MINUS SIGN}{-100 * (own.refused_from or 0):.1f} points)"
    )


def test_a_changed_rule_judges_again(package: Path) -> None:
    recipe = Recipe(name="t", dataset="sample", model=ModelSettings(kind="linear"))
    training = SimpleNamespace(root="s", recipe=recipe, fingerprint="f")

    def asked() -> PromoteSpec:
        trained: Any = SimpleNamespace(run="t-1", weights_sha256="0")
        evaluated: Any = SimpleNamespace(evaluation_sha256="0")
        return promotion_spec(cast("Any", training), trained, evaluated)

    before = asked()
    assert list(before.code) == ["sure_mistakes"]
    file = package / "my_rules.py"
    file.write_text(file.read_text().replace("0.9", "0.8"))
    assert asked().digest() != before.digest()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("RULE = 3", "got int, expected a podline.contract.rules.Rule"),
        ("from podline.champions.rules import size as RULE", "got the name 'size', expected 'odd'"),
        (
            "from podline.contract.rules import rule\nRULE = rule('odd')(lambda pair, settings: 1 / 0)",
            "promotion rule odd: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_what_is_wrong_with_one_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    (tmp_path / "broken_rule.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(entry_points, "installed", lambda group: [EntryPoint("odd", "broken_rule:RULE", group)])
    with pytest.raises(SettingsError, match=message):
        checks_of(
            Compared("classification", [guesses(0, 0.6)], guesses(1, 0.6), ("a", "b"), COSTS), PromotionSettings()
        )
    del sys.modules["broken_rule"]
