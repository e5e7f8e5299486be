from __future__ import annotations

import numpy as np

from podline.training.loop import StepsDone
from podline.training.pace import Watched


def judged(seconds: list[float], counts: list[int]) -> list[tuple[int, float, float]]:
    """What is told of parts that take so many seconds, half of them waiting, for so many steps of ten examples."""
    told: list[tuple[int, float, float]] = []
    parts = iter(seconds)

    def advance(count: int) -> StepsDone:
        took = next(parts)
        return StepsDone({"loss": np.zeros(count, np.float32)}, took, took / 2)

    watched = Watched(advance, 100, lambda step: 10, lambda *found: told.append(found))
    for count in counts:
        watched.advance(count)
    return told


def test_the_pace_is_told_once_when_enough_steps_were_taken_after_the_first_part():
    assert judged([60.0, 1.0, 1.0, 1.0, 1.0], [1, 4, 4, 4, 4]) == [(113, 3 / 120, 0.5)]


def test_few_steps_and_short_ones_tell_nothing():
    assert judged([60.0, 2.0, 2.0], [1, 1, 1]) == []
    assert judged([60.0, 0.1, 0.1], [1, 100, 100]) == []
