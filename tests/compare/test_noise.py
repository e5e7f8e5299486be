"""Chance in closed form: its limits, the spread between seeds, and how often promotion errs in drawn worlds."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from podline.compare.words import ChanceCase
from podline.contract.noise import MOST_TRAININGS, Noise, assumed_spread, luck_of, nightly, seeds_of
from podline.contract.rules import MAIN, Figure, shares
from podline.recipes.promotion_settings import PromotionSettings
from simulations.promotion import RATE, Classes, Numbers, rates


def test_limits_follow_the_answers_without_seeds_and_the_seeds_as_more_become_known() -> None:
    assert Noise(0.0, 0.0, 1).limit(4e-4, 0.025) == pytest.approx(1.96 * 0.02, rel=1e-3), "the normal distribution"
    # What the answers of single examples show, is no less than the luck that both trainings have.
    assert Noise(2e-4, 0.0, 1).limit(0.0, 0.025) == pytest.approx(1.96 * 0.02, rel=1e-3)
    assert Noise(2e-4, 0.0, 2).limit(0.0, 0.025) < 1.96 * 0.02
    random = np.random.default_rng(0)
    known = 0.9 + 0.004 * random.standard_normal((20, 1))
    [assumed], [seen] = (seeds_of(known[:count], math.inf, 0.0, 0.001) for count in (1, 20))
    assert assumed == pytest.approx(0.001**2)
    assert math.sqrt(seen) == pytest.approx(0.004, rel=0.4)
    assert luck_of(0.09, 1000, 0.0, 1) == pytest.approx(0.045 / 1000)
    assert luck_of(0.09, 1000, 0.01, 20) == pytest.approx((3 * 0.045 + 19 * 0.01) / 22 / 1000)


def test_a_drop_that_no_seed_explains_is_said_as_such_with_one_training_too() -> None:
    noise, sampled = Noise(3e-6, (0.0035 * 0.6) ** 2, 1), 1e-5
    assert ChanceCase.of(-0.57, noise, sampled) is ChanceCase.BEYOND
    assert "by the assumed spread between seeds" in ChanceCase.of(-0.57, noise, sampled).said(measured=noise.measured)
    assert ChanceCase.of(-0.012, noise, sampled) is ChanceCase.RARE
    assert ChanceCase.of(0.004, noise, sampled) is ChanceCase.USUAL
    # Of many figures that are looked at together, one is easily this far away.
    assert ChanceCase.of(-0.012, noise, sampled, tests=50) is ChanceCase.USUAL


def accuracy(trainings: int) -> Figure:
    """The accuracy of a candidate on CIFAR-10's test split."""
    spread = assumed_spread("classification", 10).main * 0.6
    noise = Noise(0.045 / 10_000, spread**2, trainings)
    sampled = 0.06 / 10_000
    return Figure("accuracy", "top1", 0.9, 0.9, sampled, noise, examples=10_000, rule=MAIN)


def test_a_loss_on_cifar10_is_decided_from_a_few_points_on() -> None:
    one, three = (accuracy(trainings).thresholds(11, RATE) for trainings in (1, 3))
    assert -0.01 < one.promoted < 0 > one.refused > -0.05
    assert one.refused < three.refused < three.promoted < 0
    assert three.margin < 0.04
    assert 1 - (1 - nightly(RATE)) ** 365 == pytest.approx(RATE), "the nights of a year add up to the rate"


def test_a_margin_of_ones_own_moves_both_thresholds_and_may_have_any_unit() -> None:
    wide, narrow = (
        Figure("age", "years", -5.0, -5.0, 0.01, Noise(0.005, 0.001, 2), margin=margin, rule=MAIN).thresholds(1, RATE)
        for margin in (3.0, 0.1)
    )
    assert wide.promoted == wide.refused < -1, "what is within the margin is not refused, even if it is certainly worse"
    assert narrow.promoted > 0, "so narrow a margin is only shown by a better model"
    assert PromotionSettings(margin=3.0).margin == 3.0


def test_a_recipe_worse_by_the_margin_passes_a_night_with_its_probability() -> None:
    """Half of the examples are answered rightly, and the seed has no effect: the change is normal."""
    figure = Figure("accuracy", "top1", 0.5, 0.5, 1e-4, Noise(0.0, 0.0, 1), margin=0.05, examples=1000, rule=MAIN)
    worse = NormalDist(-0.05, math.sqrt(1e-4 + 0.05 / 1000))
    assert 1 - worse.cdf(figure.thresholds(1, RATE).promoted) == pytest.approx(nightly(RATE), rel=1e-6)


def test_the_variance_of_a_difference_of_shares_has_half_an_example_more_in_each_case() -> None:
    before, now = np.array([[1, 1, 0, 0, 1, 0]], bool), np.array([1, 0, 1, 1, 1, 0], bool)
    [figure] = shares({"cat": before}, {"cat": now}, 0.01, "auto")
    assert (figure.sampled, figure.change) == (pytest.approx((3 + 1) / (6 + 2) ** 2), pytest.approx(1 / 6))


@pytest.mark.parametrize("wanted", [3, MOST_TRAININGS])
def test_more_trainings_are_the_fewest_that_decide_and_at_most_twenty_in_all(wanted: int) -> None:
    """The reference is known so well that only the noise of its trainings, which shrinks with their number, is left."""

    def refused(trainings: int) -> float:
        sampled = 1e-4 * (1 + 1 / trainings) / 2
        figure = Figure("accuracy", "top1", 0.5, 0.5, sampled, Noise(1e-5, 1e-5, trainings), rule=MAIN)
        return figure.thresholds(1, RATE).refused

    def doubted(change: float) -> Figure:
        return Figure("accuracy", "top1", 0.5, 0.5 + change, 1e-4, Noise(1e-5, 1e-5, 1), rule=MAIN)

    assert doubted((refused(wanted - 1) + refused(wanted)) / 2).more_trainings(1, RATE) == wanted - 1
    assert doubted(refused(MOST_TRAININGS) + 1e-9).more_trainings(1, RATE) == 0


@pytest.mark.parametrize(
    "world",
    [Classes(examples=60, classes=4, tails=5), Numbers(images=200, tails=5), Numbers(images=200, times=2)],
    ids=str,
)
def test_in_drawn_worlds_the_error_budgets_of_a_year_hold(world: Classes | Numbers) -> None:
    found = rates(world, 3, 20)
    most = RATE + 3 * math.sqrt(RATE / 20)
    assert max(found["refused"], found["whole"], found["class"]) <= most
    assert found["promoted"] >= 0.7
    assert found["better"] >= 0.9


def test_a_recipe_one_point_worse_on_ten_thousand_examples_rarely_gets_in() -> None:
    random, world = np.random.default_rng(0), Classes(examples=1000)
    promoted = [world.line(random, 3, 0.01, 5).promoted.mean() for _ in range(12)]
    assert np.mean(promoted) <= 0.2


@pytest.mark.long
@pytest.mark.parametrize("trainings", [1, 3, 8])
@pytest.mark.parametrize(
    "world",
    [
        Classes(),
        Classes(tails=5),
        Classes(times=2),
        Classes(classes=50, examples=50),
        Numbers(tails=5),
        Numbers(times=2),
    ],
    ids=str,
)
def test_five_percent_is_no_eight_in_any_world(world: Classes | Numbers, trainings: int) -> None:
    found = rates(world, trainings, 400)
    assert max(found["refused"], found["whole"], found["class"]) <= RATE + 2 * math.sqrt(RATE / 400)
