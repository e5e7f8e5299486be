"""A slow slide is found, and where there is none it is seldom found, however often one looks."""

from __future__ import annotations

import numpy as np
import pytest

from podline.evaluation.slides import RATE, evidence, slide_of


def first_alarm(line: np.ndarray) -> int | None:
    """After how many figures a slide is told, if one looks after each."""
    return next((count for count in range(1, len(line) + 1) if slide_of(line[:count])), None)


def test_evidence_is_one_in_the_mean_where_there_is_no_slide() -> None:
    random = np.random.default_rng(0)
    found = [evidence(0.9 + 0.003 * random.standard_normal(6)) for _ in range(4000)]
    assert np.mean(found) == pytest.approx(1, abs=4 * np.std(found) / np.sqrt(len(found)))


def test_evidence_minds_neither_the_mean_nor_the_scale() -> None:
    line = np.random.default_rng(1).standard_normal(30)
    assert evidence(0.7 + 0.002 * line) == pytest.approx(evidence(line))


@pytest.mark.parametrize("freedom", [4, 1000])
def test_a_line_that_does_not_slide_is_seldom_said_to_though_one_looks_every_night(freedom: int) -> None:
    random = np.random.default_rng(2)
    alarms = [first_alarm(0.9 + 0.003 * random.standard_t(freedom, 60)) is not None for _ in range(60)]
    assert np.mean(alarms) <= RATE


@pytest.mark.parametrize(("deviation", "start", "nights"), [(0.003, 0, 20), (0.003, 25, 20), (0.009, 0, 40)])
def test_a_tenth_of_a_point_a_night_is_found(deviation: float, start: int, nights: int) -> None:
    random = np.random.default_rng(3)
    for _ in range(10):
        falling = 0.001 * np.maximum(np.arange(start + nights) - start, 0)
        found = slide_of(0.9 + deviation * random.standard_normal(len(falling)) - falling)
        assert found is not None
        assert found.fall == pytest.approx(falling[-1], abs=3 * deviation)
        assert found.since <= start + nights / 2


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
    said = found.sentence("accuracy", "models")
    assert said.startswith("accuracy slides: over the last 20 models it fell by about 1.9 points, a little each time;")
    assert said.endswith("of lines that do not slide at most 5 of 100 are ever said to")
