from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podline.intervals import Z, guessing_interval, mean_interval, wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe: "Two-sided confidence intervals for the single proportion", Statistics in Medicine 1998, table I,
        # method 3 (score without continuity correction).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_the_published_one(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson_interval(successes, trials)
    assert found.value == successes / trials
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)  # the table has four digits


@given(st.integers(1, 100_000).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_wilsons_interval_holds_the_share_and_mirrors(case: tuple[int, int]) -> None:
    successes, trials = case
    found, mirrored = wilson_interval(successes, trials), wilson_interval(trials - successes, trials)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high
    assert (found.low, found.high) == pytest.approx((1 - mirrored.high, 1 - mirrored.low), abs=1e-12)


def test_nothing_is_known_without_trials() -> None:
    found = wilson_interval(0, 0)
    assert (found.value, found.low, found.high) == (0, 0, 1)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 5), (6, 5)])
def test_shares_that_cannot_be(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} successes vs {trials} trials"):
        wilson_interval(successes, trials)


def test_guessing_ten_balanced_classes() -> None:
    found = guessing_interval([1000] * 10)
    assert found.value == 0.1
    assert (found.low, found.high) == pytest.approx((0.1 - 0.00588, 0.1 + 0.00588), abs=5e-6)


def test_guessing_names_the_most_frequent_class() -> None:
    found = guessing_interval([900, 50, 50])
    assert found.value == 0.9
    assert found.high == pytest.approx(0.9 + Z * math.sqrt(0.09 / 1000))


def test_a_split_of_one_class_can_only_be_guessed() -> None:
    found = guessing_interval([0, 7])
    assert (found.low, found.value, found.high) == (1, 1, 1)


def test_nineteen_of_twenty_guessers_are_inside() -> None:
    found = guessing_interval([100] * 10)
    accuracies = np.random.default_rng(0).binomial(1000, 0.1, 20_000) / 1000
    inside = ((accuracies >= found.low) & (accuracies <= found.high)).mean()
    assert inside == pytest.approx(0.95, abs=0.01)  # accuracies are steps of 0.001: 95 % is met to within one of them


@given(st.integers(0, 400), st.lists(st.integers(1, 80), min_size=2, max_size=5))
def test_inside_guessing_is_the_same_as_a_wilson_interval_that_holds_the_guess(correct: int, counts: list[int]) -> None:
    examples = sum(counts)
    correct = min(correct, examples)
    guess, result = guessing_interval(counts), wilson_interval(correct, examples)
    margin = abs(correct / examples - guess.value) - Z * math.sqrt(guess.value * (1 - guess.value) / examples)
    if abs(margin) > 1e-9:  # on the border itself rounding decides
        inside = guess.low <= result.value <= guess.high
        assert inside == (result.low <= guess.value <= result.high)


def test_a_mean_by_hand() -> None:
    found = mean_interval([1.0, 2.0, 3.0, 6.0])
    half = Z * math.sqrt((4 + 1 + 0 + 9) / 3 / 4)
    assert (found.value, found.low, found.high) == pytest.approx((3, 3 - half, 3 + half))
    alone = mean_interval([2.5])
    assert (alone.value, alone.low, alone.high) == (2.5, 2.5, 2.5)


def test_nothing_has_no_mean_and_no_guess() -> None:
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])
    with pytest.raises(ValueError, match="no examples"):
        guessing_interval([0, 0])
