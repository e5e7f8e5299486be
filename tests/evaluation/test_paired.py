"""Paired tests, held against what can be counted by hand and against many draws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from podline.evaluation.paired import Changed, chance_to_lose, changed, difference, holm, mcnemar


def test_what_was_lost_and_gained_is_counted() -> None:
    before, after = (np.array(list(text)) == "1" for text in ("1110000", "1001110"))
    assert changed(before, after) == Changed(lost=2, gained=3, examples=7)
    assert changed(before, after).drop == pytest.approx(-1 / 7)
    with pytest.raises(ValueError, match="not the same"):
        changed(before, after[:3])


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (1, 0), (5, 1), (9, 9), (3, 12)])
def test_mcnemar_is_what_counting_every_outcome_gives(lost: int, gained: int) -> None:
    disputed = lost + gained
    far = abs(lost - gained)
    outcomes = [abs(2 * sum(coins) - disputed) >= far for coins in itertools.product((0, 1), repeat=disputed)]
    assert mcnemar(Changed(lost, gained, 100)) == pytest.approx(min(1, np.mean(outcomes)))
    worse = [sum(coins) >= lost for coins in itertools.product((0, 1), repeat=disputed)]
    assert chance_to_lose(Changed(lost, gained, 100)) == pytest.approx(np.mean(worse))


def test_large_counts_have_their_tails_as_well() -> None:
    assert chance_to_lose(Changed(5100, 4900, 50_000)) == pytest.approx(0.0233, abs=5e-4)  # z = (200 - 1) / 100
    assert chance_to_lose(Changed(900, 100, 10_000)) < 1e-100


def test_the_interval_holds_the_true_difference_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    held = 0
    for _ in range(1000):
        lost, gained, _ = random.multinomial(300, (0.06, 0.04, 0.9))
        found = difference(Changed(int(lost), int(gained), 300))
        held += found.low <= -0.02 <= found.high
    assert 925 < held < 980
    assert difference(Changed(0, 0, 50)).low < 0 < difference(Changed(0, 0, 50)).high


def test_holms_chances_are_those_of_his_paper() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.9}) == pytest.approx(
        {"a": 0.04, "b": 0.09, "c": 0.09, "d": 0.9}
    )
    assert holm({}) == {}
    random = np.random.default_rng(2)
    wrong = [min(holm(dict(enumerate(random.uniform(size=12)))).values()) < 0.05 for _ in range(4000)]
    assert np.mean(wrong) < 0.05 + 3 * np.sqrt(0.05 / 4000)
