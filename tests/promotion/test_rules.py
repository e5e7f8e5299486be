"""The rules of promotion on models that are drawn: how often each verdict is wrong, and what is said."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.guessed import guesses_of

from benchmarks.promotion import World
from podline.documents.promotion import Check
from podline.kinds.classification.guesses import Guesses
from podline.noise import NIGHTS, Noise, missed
from podline.promotion.figure import WIDEST, ModelCost, Pair
from podline.promotion.rules import checks_of, detects
from podline.recipes.promotion_settings import PromotionSettings

RULES = PromotionSettings()
SAME = (ModelCost(1000, 1000), ModelCost(1000, 1000))
WORLD = World(examples=200)
NAMES = tuple(f"class {label}" for label in range(WORLD.classes))
LABELS = np.repeat(np.arange(WORLD.classes), WORLD.examples)


@pytest.mark.parametrize(
    ("world", "trainings"),
    [(World(examples=100), 8), (World(classes=2, examples=200), 1), (World(examples=200, share=0.99), 1)],
    ids=str,
)
def test_an_equal_model_is_promoted_nine_nights_of_ten_and_a_better_one_at_once(world: World, trainings: int) -> None:
    random, lines, nights = np.random.default_rng(0), 40, 5
    equal = [world.line(random, trainings, "nothing", nights)[0] for _ in range(lines)]
    # Nights of one line share their reference, so they are no independent draws.
    assert np.mean(equal) / nights >= 0.9 - 3 * math.sqrt(0.1 * 0.9 / lines)
    assert np.mean([world.line(random, trainings, "better", 1)[0] for _ in range(lines)]) >= 0.95


@pytest.mark.parametrize(("worse", "trainings"), [("class", 1), ("whole", 8)])
def test_a_recipe_that_is_worse_by_the_margin_is_rarely_promoted_within_a_year(worse: str, trainings: int) -> None:
    random, lines = np.random.default_rng(1), 25
    promoted = [World(examples=100).line(random, trainings, worse, NIGHTS)[0] > 0 for _ in range(lines)]
    assert np.mean(promoted) <= RULES.rate + 3 * math.sqrt(RULES.rate / lines)


def models(seed: int, count: int, worse: dict[int, float] | None = None) -> list[Guesses]:
    """Draw trainings of one recipe; the last one may be worse in some classes, by a share."""
    random = np.random.default_rng(seed)
    shifts = WORLD.shifts(random, count)
    for label, by in (worse or {}).items():
        shifts[-1, label] -= by
    right = WORLD.answers(random, WORLD.difficulty(random), shifts).reshape(count, -1)
    return [guesses_of(LABELS, np.where(each, LABELS, (LABELS + 1) % len(NAMES))) for each in right]


def checks(found: list[Guesses], settings: PromotionSettings = RULES, costs: Any = SAME) -> list[Check]:
    return checks_of(Pair("classification", found[:-1], found[-1], costs, NAMES), settings)


@pytest.mark.parametrize("known", [1, 5])
def test_a_class_that_is_lost_refuses_by_name(known: int) -> None:
    for seed in range(2):
        refused = [check for check in checks(models(seed, known + 1, {3: 0.6})) if check.refused]
        assert {check.what for check in refused} <= {"class class 3", "accuracy", "calibration error"}
        [lost] = [check for check in refused if check.rule == "class"]
        assumed = ", by the assumed spread between seeds" if known == 1 else ""
        assert lost.message.endswith(f"points; worse beyond chance{assumed}")
        of = "the reference" if known == 1 else "the mean of 5 trainings of the reference's recipe"
        assert f" % of {of}, \N{MINUS SIGN}" in lost.message


def test_equal_models_are_refused_no_more_often_than_once_in_twenty_years() -> None:
    refused = sum(any(check.refused for check in checks(models(seed, 4))) for seed in range(20))
    assert refused <= 1


def test_a_model_that_is_far_better_is_said_to_be_and_an_equal_one_is_not() -> None:
    worse = dict.fromkeys(range(10), 0.15)
    for seed in range(3):
        *known, poor = models(seed, 5, worse)
        assert checks([poor, known[0]])[0].better
        assert not checks(known)[0].better


def test_a_margin_that_is_set_decides_and_says_what_is_missing() -> None:
    # With one training known, 6 points cannot be shown; with more they can.
    found = models(3, 9)
    settings = RULES.model_copy(update={"margin": 0.06})
    [one] = [check for check in checks([found[0], found[-1]], settings) if check.rule == "main"]
    assert one.undecided
    assert one.message.endswith("; not shown to be within the margin of 6.0 points")
    assert one.more_trainings > 0
    [several] = [check for check in checks(found, settings) if check.rule == "main"]
    assert several.shown
    [narrow] = [check for check in checks(found, RULES.model_copy(update={"margin": 0.0})) if check.rule == "main"]
    assert (narrow.undecided, narrow.more_trainings) == (True, 0)


def test_margins_shrink_with_trainings_and_examples_and_are_told() -> None:
    def margin(examples: float, trainings: int) -> float:
        return Noise(0.9, examples, 0.045 / examples, 0.002**2, trainings).margin(missed(11, main=True), RULES.rate)

    assert margin(10_000, 1) > margin(10_000, 4) > margin(10_000, 20)
    assert margin(100, 4) > margin(1000, 4) > margin(10_000, 4)
    # A spread between seeds of 0.2 points.
    assert margin(10_000, 20) <= 0.022
    found = checks(models(0, 4))
    [main] = [check for check in found if check.rule == "main"]
    widest = max(check.margin or 0 for check in found if check.rule == "class")
    assert (
        detects(found) == f"margins: {100 * (main.margin or 0):.1f} points; {100 * widest:.1f} points in a single class"
    )


def test_few_examples_leave_a_model_undecided_that_is_clearly_worse() -> None:
    few = np.concatenate([np.arange(44, dtype=int) * 20])
    known, now = (models(seed, 1)[0].at(few) for seed in (0, 1))
    [main] = [check for check in checks([known, now]) if check.rule == "main"]
    assert main.margin == WIDEST
    assert main.undecided


def test_a_class_of_few_examples_is_no_figure() -> None:
    few = np.concatenate([np.arange(200, dtype=int), np.arange(200, 230)])
    found = checks([replace(each.at(few)) for each in models(0, 3)])
    assert [(check.rule, check.name) for check in found[:3]] == [
        ("main", "accuracy"),
        ("class", "class 0"),
        ("calibration", "calibration error"),
    ]


def test_a_larger_model_is_refused_by_that_name() -> None:
    *_, size, operations = checks(models(0, 2), costs=(ModelCost(1000, 1000), ModelCost(1101, 1099)))
    assert [(check.rule, check.refused) for check in (size, operations)] == [("size", True), ("operations", False)]
    assert size.message == (
        "size, parameters: 1,101 bytes vs 1,000 of the reference: +10.1 %, and at most +10 % is allowed"
    )
