"""The pace of a training: what its supervisor is told, and when it is compared with earlier runs."""

from __future__ import annotations

import contextlib
from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from podline.training import run
from podline.training.findings import Findings, JudgePace
from podline.training.loop import StepsDone, Stretch


def test_steps_have_the_pace_of_their_like_and_what_is_between_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([8.0, 1.0, 1.0, 3.0])
    said: list[Any] = []

    class Steps:
        def advance(self, count: int) -> StepsDone:
            said.append("steps")
            return StepsDone({"loss": np.zeros(count, np.float32)}, seconds=next(seconds) * count, waiting=0.0)

    def enter(self: Any, step: int) -> None:
        self._step, self._phase = step, SimpleNamespace(end=99)
        self._steps, self._seconds = Steps(), deque[float](maxlen=31)
        self._batches = SimpleNamespace(explained=contextlib.nullcontext)

    monkeypatch.setattr(run.PhasedSteps, "_enter", enter)
    fake = SimpleNamespace(reporter=SimpleNamespace(pace=said.append))
    steps = run.PhasedSteps(cast(run.Run, fake), 0, lambda: 1.0)
    for count in (1, 2, 4, 1):
        steps.advance(count)
    assert said == [None, "steps", None, 16.0, "steps", None, 4 * 4.5, "steps", None, 1.0, "steps", None]


def judged(seconds: list[float], counts: list[int]) -> list[tuple[float, float]]:
    """What is compared of stretches that take so many seconds, half of them waiting, for so many steps of ten."""
    compared: list[tuple[float, float]] = []
    findings = Findings((), lambda _line: None, lambda _message: None)
    hook = JudgePace(findings, lambda step: 10, lambda *found: compared.append(found))
    step = 100
    for took, count in zip(seconds, counts, strict=True):
        step += count
        hook.after(Stretch({"loss": np.zeros(count, np.float32)}, took, took / 2, step=step, last=False))
    return compared


def test_the_pace_is_compared_once_when_enough_steps_were_taken_after_the_first_stretch() -> None:
    assert judged([60.0, 1.0, 1.0, 1.0, 1.0], [1, 4, 4, 4, 4]) == [(3 / 120, 0.5)]


def test_few_steps_and_short_ones_are_not_compared() -> None:
    assert judged([60.0, 2.0, 2.0], [1, 1, 1]) == []
    assert judged([60.0, 0.1, 0.1], [1, 100, 100]) == []
