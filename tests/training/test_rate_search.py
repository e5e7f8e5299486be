"""Reading a learning rate off curves whose shape is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from podline.errors import DivergenceError
from podline.recipes.settings import ScheduleSettings
from podline.training.rate_search import LEAST_STEPS, explodes_at, moving_average, suggest

ONE_CYCLE = ScheduleSettings(kind="one_cycle")
STEPS = 300
RATES = np.geomspace(1e-5, 10, STEPS)


def valley(low: float, high: float, depth: float = 1.5, noise: float = 0.1, seed: int = 0) -> list[float]:
    """A loss that falls from 2.3 around a rate and rises again around a higher one."""
    x = np.log(RATES)
    fall = depth / (1 + np.exp(-2 * (x - math.log(low))))
    rise = 2 * depth / (1 + np.exp(-3 * (x - math.log(high))))
    return (2.3 - fall + rise + np.random.default_rng(seed).normal(0, noise, STEPS)).tolist()


def test_a_moving_average_is_of_the_losses_so_far_and_has_no_bias() -> None:
    assert moving_average([3.0, 3.0, 3.0]) == pytest.approx([3, 3, 3])
    # (0.9·0.1·1 + 0.1·2) / (1 - 0.81)
    assert moving_average([1.0, 2.0])[1] == pytest.approx(0.29 / 0.19)


def test_an_explosion_is_a_loss_far_above_the_lowest_or_no_number() -> None:
    calm = [2.0, *[1.0] * 29]
    assert explodes_at(calm) is None
    assert explodes_at([*calm, math.nan, 1.0]) == 30
    assert explodes_at([*calm, math.inf]) == 30
    assert explodes_at([math.nan]) == 0
    assert explodes_at([*calm, *[20.0] * 10]) in (31, 32, 33)
    assert explodes_at([0.01, *[0.1, 0.01] * 30]) is None, "small losses that differ by much are no explosion"


@pytest.mark.parametrize("seed", range(2))
def test_the_suggestion_is_the_middle_of_the_valleys_floor(seed: int) -> None:
    found = suggest(RATES.tolist(), valley(0.01, 3.0, seed=seed), ONE_CYCLE)
    assert found.floor is not None
    low, high = found.floor
    # Nine tenths of the fall are done at exp(ln(9) / 2) = 3 times 0.01, and one of them is lost again at
    # exp(-ln(19) / 3) = 0.37 times 3; smoothing takes a little off either side of the floor.
    assert 0.02 < low < 0.06
    assert 0.4 < high < 1.6
    assert low < found.learning_rate < high
    assert 0.1 < found.learning_rate < 0.6
    assert found.blow_up == pytest.approx(2.3, rel=0.5)


def test_a_flat_schedule_bears_less_than_one_that_rises_and_falls() -> None:
    rates = [
        suggest(RATES.tolist(), valley(0.01, 3.0), ScheduleSettings(kind=kind)).learning_rate
        for kind in ("one_cycle", "cosine", "plateau")
    ]
    assert rates[0] == pytest.approx(1.25 * rates[1], rel=0.05)
    assert rates[0] == pytest.approx(5 * rates[2], rel=0.05)


def test_a_cliff_right_after_the_fall_keeps_the_suggestion_below_a_quarter_of_it() -> None:
    losses = np.array(valley(0.01, 1e9, noise=0.02))
    losses[RATES > 0.06] = 50.0
    end = explodes_at(losses.tolist())
    assert end is not None
    found = suggest(RATES[: end + 5].tolist(), losses[: end + 5].tolist(), ONE_CYCLE)
    assert found.blow_up is not None
    assert found.learning_rate <= found.blow_up / 4 * 1.05
    assert any("lowered to a quarter of that" in reason for reason in found.reasons)


def test_trained_weights_get_a_rate_that_does_not_spoil_them() -> None:
    losses = valley(1e9, 0.5, noise=0.05)
    found = suggest(RATES.tolist(), losses, ONE_CYCLE)
    assert found.floor is None
    assert found.blow_up is not None
    assert found.learning_rate == pytest.approx(found.blow_up / 4, rel=0.05)
    assert "trained already" in found.reasons[0]


def test_a_curve_that_says_nothing_is_an_error() -> None:
    noise = np.random.default_rng(0).normal(2.3, 0.1, STEPS).tolist()
    with pytest.raises(DivergenceError, match=r"neither falls nor rises from 2\.\d+ with rates from 1e-05 to 10"):
        suggest(RATES.tolist(), noise, ONE_CYCLE)
    with pytest.raises(DivergenceError, match=f"exploded after 5 steps with rates .* expected at least {LEAST_STEPS}"):
        suggest(RATES[:5].tolist(), [2.0] * 5, ONE_CYCLE)
