"""Intervals are those that are published, or worked out by hand."""

from __future__ import annotations

import math

import pytest

from podline.documents.intervals import Z, guessing_interval, holm, mean_interval, wilson_interval


def test_holms_chances_are_those_of_his_paper() -> None:
    chances = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.9})
    assert chances == pytest.approx({"a": 0.04, "b": 0.09, "c": 0.09, "d": 0.9})
    assert holm({}) == {}


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
    nothing = wilson_interval(0, 0)
    assert (nothing.value, nothing.low, nothing.high) == (0, 0, 1)


@pytest.mark.parametrize(
    ("counts", "share", "half"), [([1000] * 10, 0.1, 0.00588), ([900, 50, 50], 0.9, 0.01859), ([0, 7], 1.0, 0.0)]
)
def test_guessing_names_the_most_frequent_class(counts: list[int], share: float, half: float) -> None:
    found = guessing_interval(counts)
    assert (found.value, found.low, found.high) == pytest.approx((share, share - half, share + half), abs=5e-6)


def test_a_mean_by_hand() -> None:
    found = mean_interval([1.0, 2.0, 3.0, 6.0])
    half = Z * math.sqrt((4 + 1 + 0 + 9) / 3 / 4)
    assert (found.value, found.low, found.high) == pytest.approx((3, 3 - half, 3 + half))
    alone = mean_interval([2.5])
    assert (alone.value, alone.low, alone.high) == (2.5, 2.5, 2.5)
