from __future__ import annotations

import numpy as np

from podline.training.loop import StepsDone
from podline.training.pace import Paced


def test_steps_have_the_pace_of_their_like_and_what_is_between_has_none():
    seconds = iter([8.0, 1.0, 1.0, 3.0])
    said: list[float | str | None] = []

    def advance(count: int) -> StepsDone:
        said.append("steps")
        return StepsDone({"loss": np.zeros(count, np.float32)}, seconds=next(seconds) * count, waiting=0.0)

    steps = Paced(advance, said.append)
    for count in (1, 2, 4, 1):
        steps.advance(count)
    assert said == [None, "steps", None, 16.0, "steps", None, 4 * 4.5, "steps", None, 1.0, "steps", None]
