"""The rules of promotion, Podline's and an installed one, on drawn models: which verdict, and what is said."""

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
from podline.champions.rules import checks_of, thresholds
from podline.contract.rules import WIDEST, Compared, ModelCost
from podline.documents.promotion import Check
from podline.kinds.classification.guesses import Guesses
from podline.recipes.promotion_settings import PromotionSettings
from podline.recipes.settings import ModelSettings, Recipe
from podline.stages.from_recipe import promotion_spec
from podline.stages.specs import PromoteSpec

RULES = PromotionSettings()
SAME = (ModelCost(1000, 1000), ModelCost(1000, 1000))
NAMES = tuple(f"class {label}" for label in range(10))
LABELS = np.repeat(np.arange(10), 200)


def models(seed: int, count: int, worse: dict[int, float] | None = None, share: float = 0.9) -> list[Guesses]:
    """Draw trainings of one recipe; the last one may be worse in some classes, by a share."""
    random = np.random.default_rng(seed)
    shares = np.full((count, 10), share) + 0.002 * random.standard_normal((count, 10))
    for label, by in (worse or {}).items():
        shares[-1, label] -= by
    easy = random.random(len(LABELS)) * 0.6 - 0.3
    right = random.random((count, len(LABELS))) < np.clip(shares[:, LABELS] + easy * (1 - shares[:, LABELS]), 0, 1)
    return [guesses_of(LABELS, np.where(each, LABELS, (LABELS + 1) % len(NAMES))) for each in right]


def checks(found: list[Guesses], settings: PromotionSettings = RULES, costs: Any = SAME) -> list[Check]:
    return checks_of(Compared("classification", found[:-1], found[-1], NAMES, costs), settings)


def main_of(found: list[Check]) -> Check:
    return next(check for check in found if check.rule == "main")


@pytest.mark.parametrize("known", [1, 5])
def test_a_class_that_is_lost_refuses_by_name_with_both_thresholds(known: int) -> None:
    refused = [check for check in checks(models(0, known + 1, {3: 0.8})) if check.refused]
    assert {check.what for check in refused} <= {"class class 3", "accuracy"}
    [lost] = [check for check in refused if check.rule == "class"]
    of = "the reference" if known == 1 else "the mean of 5 trainings of the reference's recipe"
    assert f" % of {of}, \N{MINUS SIGN}" in lost.message
    assumed = ", by the assumed spread between seeds" if known == 1 else ""
    limits = (
        f"promoted up to {100 * (lost.promoted_to or 0):.1f}, refused from {100 * (lost.refused_from or 0):.1f} points"
    )
    assert lost.message.endswith(f"more than seeds usually do{assumed} ({limits})".replace("-", "\N{MINUS SIGN}"))


def test_equal_models_are_neither_refused_nor_said_to_be_better() -> None:
    for seed in range(8):
        found = checks(models(seed, 4))
        assert not any(check.refused or check.better for check in found)
        assert main_of(found).shown or seed == 7


def test_nothing_holds_back_a_model_that_is_better_beyond_chance_unless_it_is_strict() -> None:
    known = models(0, 3, share=0.6)
    [now] = models(1, 1, {3: 0.9}, share=0.97)
    # So certain of itself that its calibration is far worse.
    now = replace(now, confidences=np.full(len(LABELS), 0.3))
    found = {check.what: check for check in checks([*known, now])}
    assert found["accuracy"].better
    for what in ("class class 3", "calibration error"):
        assert (found[what].warned, found[what].refused, found[what].undecided) == (True, False, False)
    strict = RULES.model_copy(update={"strict": ("class", "calibration_error")})
    refused = {check.what for check in checks([*known, now], strict) if check.refused}
    assert refused == {"calibration error"}
    assert [check.what for check in checks([*known, now], strict) if check.undecided] == ["class class 3"]
    # The calibration only warns of a model that is not better either.
    equal = replace(models(1, 1)[0], confidences=now.confidences)
    found = {check.what: check for check in checks([*models(0, 3), equal])}
    assert found["calibration error"].warned
    assert not any(check.refused or check.undecided for check in found.values())


def test_between_the_thresholds_a_model_is_undecided_and_it_is_said_what_would_decide() -> None:
    found = models(3, 9)
    narrow = RULES.model_copy(update={"margin": 0.015, "part_margin": 0.9})
    one = main_of(checks([found[0], found[-1]], narrow))
    assert one.undecided
    assert one.promoted_to is not None
    assert one.promoted_to > 0, "so narrow a margin takes a better model"
    assert "(promoted from +" in one.message
    impossible = main_of(checks(found, RULES.model_copy(update={"margin": 0.0})))
    assert (impossible.undecided, impossible.more_trainings) == (True, 0)


def test_thresholds_come_closer_with_trainings_and_are_told() -> None:
    one, several = (checks(models(0, count)) for count in (2, 6))
    near, far = main_of(several), main_of(one)
    assert (far.refused_from or 0) < (near.refused_from or 0) < (near.promoted_to or 0) < 0
    limits = f"{100 * (near.promoted_to or 0):.1f}, refused from {100 * (near.refused_from or 0):.1f} points"
    said = f"promoted up to {limits}; the least certain class, class ".replace("-", "\N{MINUS SIGN}")
    assert thresholds(several).startswith(said)


def test_a_threshold_of_zero_accepts_equal_models() -> None:
    limits: dict[str, Any] = {"before": 0.5, "promoted_to": 0.0, "refused_from": -0.1}
    zero = Check(rule="main", name="accuracy", measure="top1", refused=False, message="", **limits)
    assert thresholds([zero]) == "promoted up to +0.0, refused from \N{MINUS SIGN}10.0 points"


def test_few_examples_leave_a_worse_model_undecided_and_a_class_of_few_is_no_figure() -> None:
    few = np.arange(44, dtype=int) * 20
    known, now = (models(seed, 1)[0].at(few) for seed in (0, 1))
    main = main_of(checks([known, now]))
    assert main.margin == WIDEST
    assert main.undecided
    few = np.concatenate([np.arange(200, dtype=int), np.arange(200, 230)])
    found = checks([each.at(few) for each in models(0, 3)])
    assert [check.name for check in found[:3]] == ["accuracy", "class 0", "calibration error"]


def test_a_larger_model_is_refused_by_that_name() -> None:
    *_, size, operations = checks(models(0, 2), costs=(ModelCost(1000, 1000), ModelCost(1101, 1099)))
    assert [(check.rule, check.refused) for check in (size, operations)] == [("size", True), ("operations", False)]
    assert size.message == ("size, parameters: 1,101 bytes vs 1,000 of the reference: +10.1 %, expected at most +10 %")
    *_, operations = checks(models(0, 2), costs=(ModelCost(1000, 0), ModelCost(1000, 5)))
    assert operations.message == "operations, one example: 5 multiply-adds vs 0 of the reference: not compared"


def boasting(seed: int, confidence: float) -> Guesses:
    """Draw guesses of which three of ten are wrong, with this confidence."""
    labels = np.zeros(400, np.int64)
    wrong = np.random.default_rng(seed).random(400) < 0.3
    return replace(guesses_of(labels, wrong.astype(np.int64)), confidences=np.where(wrong, confidence, 0.7))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the page's package, for this process."""
    code, toml = (code_of("## A rule of promotion", language) for language in ("python", "toml"))
    folder = install(tmp_path_factory.mktemp("installed"), {"my_rules": code}, toml)
    with pytest.MonkeyPatch.context() as installed:
        installed.syspath_prepend(folder)
        yield folder
    sys.modules.pop("my_rules", None)


def test_an_installed_rule_refuses_a_candidate_by_its_name(package: Path) -> None:
    for confidence, refused in ((0.6, []), (0.99, ["sure_mistakes"])):
        found = checks([boasting(0, 0.6), boasting(1, confidence)])
        [own] = [check for check in found if check.rule == "sure_mistakes"]
        assert [check.rule for check in found if check.refused] == refused
    said = "free of sure mistakes: 67.8 % vs 100.0 % of the reference, \N{MINUS SIGN}32.2 points: more than seeds "
    assert own.message.startswith(said)


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
def test_what_is_wrong_with_an_installed_rule_is_said(tmp_path: Path, monkeypatch, source: str, message: str) -> None:
    (tmp_path / "broken_rule.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(entry_points, "installed", lambda group: [EntryPoint("odd", "broken_rule:RULE", group)])
    with pytest.raises(SettingsError, match=message):
        checks([boasting(0, 0.6), boasting(1, 0.6)])
    del sys.modules["broken_rule"]
