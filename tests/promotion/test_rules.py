"""The rules, on models that are drawn: what is equal passes, what is worse is refused and named."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from drawn_models import CLASSES, LABELS, RULES, SAME, Models, standing

from podline.documents.promotion import Check
from podline.evaluation.guesses import Guesses
from podline.evaluation.paired import Changed
from podline.promotion.chance import Movement, Share, fall_of, shown_spread, spread_of, student_tail
from podline.promotion.margins import ENOUGH_PEERS
from podline.promotion.rules import ModelCost, checks_of
from podline.promotion.standings import paired_classes


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    # Student's table, as every textbook has it.
    [(1.812, 10, 0.05), (2.764, 10, 0.01), (2.132, 4, 0.05), (6.314, 1, 0.05), (1.645, 1e6, 0.05), (0, 3, 0.5)],
)
def test_the_tails_of_students_variable_are_those_of_the_tables(t: float, freedom: float, tail: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(tail, abs=1e-4)
    assert student_tail(-t, freedom) == pytest.approx(1 - tail, abs=1e-4)


def test_a_spread_is_the_same_in_angles_wherever_the_share_lies() -> None:
    for share in (0.2, 0.5, 0.9):
        moved = Share(share + spread_of(0.001, share), 10**9).angle - Share(share, 10**9).angle
        assert moved == pytest.approx(0.001, rel=0.01)


def test_the_chance_by_peers_keeps_its_rate_for_one_more_of_them() -> None:
    random = np.random.default_rng(0)
    chances = [fall_of(random.normal(0.7, 0.02, 5), random.normal(0.7, 0.02), 4e-4).chance() for _ in range(3000)]
    for rate in (0.5, 0.05, 0.01):
        # That what is expected is just right makes it the more careful, far out.
        assert 0.2 * rate < np.mean(np.array(chances) < rate) < rate + 3 * math.sqrt(rate / 3000)
    assert fall_of([0.5, 0.5], 0.4, 0.0).chance() == pytest.approx(0, abs=1e-40)
    assert fall_of([0.5, 0.5], 0.5, 0.0).chance() == pytest.approx(1)


def refusals(candidate: Guesses, peers: list[Guesses]) -> list[Check]:
    paired = paired_classes(peers[0], candidate, CLASSES, RULES) if len(peers) < ENOUGH_PEERS else None
    checks = checks_of(standing(candidate), [standing(peer) for peer in peers], paired, SAME, RULES)
    return [check for check in checks if check.refused]


@pytest.mark.parametrize("peers", [1, 3, 12])
def test_equal_models_are_refused_no_more_often_than_the_rate_and_worse_ones_with_their_class_named(peers: int) -> None:
    refused, named, times = 0, 0, 40 if peers < ENOUGH_PEERS else 150
    for time in range(times):
        models = Models(time, spread=0.02)
        line = [models.trained() for _ in range(peers)]
        refused += bool(refusals(models.trained(), line))
        worse = time % len(CLASSES)
        # One class of ten loses 25 points: the model as a whole two and a half.
        named += any(check.name == CLASSES[worse] for check in refusals(models.trained(worse, by=0.25), line))
    assert refused / times <= RULES.rate + 3 * math.sqrt(RULES.rate / times)
    assert named / times >= 0.95 - 3 * math.sqrt(0.05 / times)


@pytest.mark.parametrize("peers", [1, 3])
def test_trainings_that_differ_far_more_than_is_assumed_are_refused_no_more_often_either(peers: int) -> None:
    times, refused = 30, 0
    for time in range(times):
        models = Models(time, spread=0.1)
        line = [models.trained() for _ in range(peers)]
        refused += bool(refusals(models.trained(), line))
    assert refused / times <= RULES.rate + 3 * math.sqrt(RULES.rate / times)


@pytest.mark.parametrize("peers", [1, 3])
def test_what_all_classes_lose_together_is_no_matter_of_the_seed(peers: int) -> None:
    for time in range(5):
        models = Models(time, spread=0.02)
        line = [models.trained() for _ in range(peers)]
        found, missed = models.trained(), models.random.uniform(size=len(LABELS)) < 0.15
        blind = replace(found, predictions=np.where(missed, -1, found.predictions))
        assert "main" in {check.rule for check in refusals(blind, line)}


def test_what_a_seed_does_is_seen_in_how_differently_the_classes_move() -> None:
    random = np.random.default_rng(0)
    found = []
    for _ in range(100):
        # Two trainings, 100,000 examples a class, half of them right: examples explain next to nothing.
        moved = 0.03 * np.diff(random.standard_normal((2, 10)), axis=0)[0] + 0.2
        counts = [Changed(round(25_000 + 50_000 * by), round(25_000 - 50_000 * by), 100_000) for by in moved]
        found.append(shown_spread([Movement(count, 0.5) for count in counts]))
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(0.03, rel=0.1)
    assert shown_spread([Movement(Changed(30, 30, 100), 0.5)] * 10) == 0
    assert shown_spread([Movement(Changed(30, 0, 100), 0.5)] * 3) == 0


def test_what_refuses_is_said_with_both_values_and_how_likely_it_is() -> None:
    models = Models(0, spread=0.01)
    line = [models.trained() for _ in range(5)]
    found = refusals(models.trained(3, by=0.4), line)
    [check] = [check for check in found if check.rule == "class"]
    assert check.name == "class 3"
    assert check.before is not None
    assert check.after is not None
    assert check.message.startswith(
        f"class class 3: {100 * check.after:.1f} % vs {100 * check.before:.1f} % of the mean of 5"
    )
    assert check.message.endswith(
        "points lower; chance alone gives that to fewer than 1 of 1,000 models that are as good, and below 5 of 100 it "
        "is refused"
    )


def test_a_model_that_is_badly_calibrated_or_larger_is_refused_by_that_name() -> None:
    models = Models(1, spread=0.0)
    before, after = models.trained(), models.trained()
    paired = paired_classes(before, after, CLASSES, RULES)
    costs = ModelCost(1000, 1000), ModelCost(1101, 1099)
    checks = checks_of(standing(after, 0.3), [standing(before)], paired, costs, RULES)
    assert [(check.rule, check.name) for check in checks if check.refused] == [
        ("calibration", "calibration error"),
        ("size", "parameters"),
    ]
    [size] = [check.message for check in checks if check.rule == "size"]
    assert size == "size, parameters: 1,101 bytes vs 1,000 of the champion: +10.1 %, and at most +10 % is allowed"
    near = checks_of(standing(after, 0.045), [standing(before)], paired, SAME, RULES)
    assert not any(check.refused for check in near)
