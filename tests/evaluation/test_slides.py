"""A slow slide is found, and where there is none it is seldom found, however often one looks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from podline.evaluation.slides import RATE, evidence, slide_of


def first_alarm(line: np.ndarray) -> int | None:
    """After how many figures a slide is told, if one looks after each."""
    return next((count for count in range(1, len(line) + 1) if slide_of(line[:count])), None)


def test_evidence_is_one_in_the_mean_over_every_order_of_the_figures() -> None:
    orders = [np.array(order, np.float64) for order in itertools.permutations(range(6))]
    assert np.mean([evidence(order) for order in orders]) == pytest.approx(1)
    # Of equal figures an order tells less.
    assert np.mean([evidence(order // 2) for order in orders]) < 1


def test_evidence_minds_neither_the_mean_nor_the_scale() -> None:
    line = np.random.default_rng(1).standard_normal(30)
    assert evidence(0.7 + 0.002 * line) == pytest.approx(evidence(line))


@pytest.mark.parametrize("freedom", [2, 1000])
def test_a_line_that_does_not_slide_is_seldom_said_to_though_one_looks_every_night(freedom: int) -> None:
    random = np.random.default_rng(2)
    alarms = [first_alarm(0.9 + 0.003 * random.standard_t(freedom, 60)) is not None for _ in range(60)]
    assert np.mean(alarms) <= RATE + 3.1 * np.sqrt(RATE / len(alarms))


@pytest.mark.parametrize(("deviation", "start", "nights"), [(0.003, 0, 24), (0.003, 25, 24), (0.009, 0, 45)])
def test_a_tenth_of_a_point_a_night_is_found(deviation: float, start: int, nights: int) -> None:
    random = np.random.default_rng(3)
    for _ in range(10):
        falling = 0.001 * np.maximum(np.arange(start + nights) - start, 0)
        found = slide_of(0.9 + deviation * random.standard_normal(len(falling)) - falling)
        assert found is not None
        assert found.since < len(falling)
        assert found.fall == pytest.approx(falling[-1] - falling[found.since], abs=3 * deviation)


def test_a_line_that_rises_jumps_up_or_stands_still_does_not_slide() -> None:
    random = np.random.default_rng(4)
    noise = 0.003 * random.standard_normal(60)
    for line in (0.001 * np.arange(60) + noise, 0.02 * (np.arange(60) > 30) + noise, np.full(60, 0.9)):
        assert first_alarm(line) is None
    assert slide_of([]) is None
    assert slide_of([0.9, 0.5]) is None


def test_the_slide_is_said_in_a_line() -> None:
    found = slide_of([0.9 - 0.001 * place + 0.0005 * (place % 2) for place in range(20)])
    assert found is not None
    said = found.sentence("top1", "models")
    assert said.startswith("accuracy slides: over the last 20 models it fell by about 1.9 points, a little each time;")
    assert said.endswith("of lines that do not slide at most 5 of 100 are ever said to")
    assert "AP slides" in found.sentence("ap", "models")
    assert "by about 0.019," in found.sentence("ap", "models")
