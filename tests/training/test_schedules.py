from __future__ import annotations

import math
import subprocess
import sys

import pytest

from podline.errors import SettingsError
from podline.recipes.epochs import Epochs
from podline.recipes.settings import ScheduleSettings
from podline.training.schedules import Schedule, build_schedule

EPOCHS = Epochs(1000, 20)  # of 50 steps


def schedule(total: int = 200, **settings: object) -> Schedule:
    return build_schedule(ScheduleSettings.model_validate(settings), total, EPOCHS)


@pytest.mark.parametrize(
    ("settings", "points"),
    [
        ({"kind": "constant", "learning_rate": 0.3}, {0: 0.3, 1: 0.3, 199: 0.3}),
        (
            {"kind": "constant", "learning_rate": 0.3, "warmup": {"steps": 30}},
            {0: 0.0, 1: 0.01, 15: 0.15, 29: 0.29, 30: 0.3, 199: 0.3},
        ),
        (
            {"kind": "exponential", "learning_rate": 1.0, "decay": 0.5, "decay_every": {"epochs": 1}},
            {0: 1.0, 49: 1.0, 50: 0.5, 99: 0.5, 100: 0.25, 199: 0.125},
        ),
        (
            {
                "kind": "exponential",
                "learning_rate": 1.0,
                "decay": 0.5,
                "decay_every": {"examples": 200},
                "warmup": {"epochs": 0.1},
            },
            {0: 0.0, 4: 0.8, 5: 1.0, 14: 1.0, 15: 0.5, 25: 0.25},
        ),
        (
            {"kind": "cosine", "learning_rate": 2.0},
            {0: 2.0, 50: 1 + math.cos(math.pi / 4), 100: 1.0, 150: 1 - math.cos(math.pi / 4), 200: 0.0, 300: 0.0},
        ),
        (
            {"kind": "cosine", "learning_rate": 2.0, "final": 0.1, "warmup": {"epochs": 2}},
            {0: 0.0, 50: 1.0, 100: 2.0, 150: 1.1, 200: 0.2, 999: 0.2},
        ),
        (
            {"kind": "one_cycle", "learning_rate": 0.4, "warmup": {"steps": 40}},
            {0: 0.0, 20: 0.2, 40: 0.4, 120: 0.2, 199: 0.0025, 200: 0.0, 300: 0.0},
        ),
        ({"kind": "one_cycle", "learning_rate": 1.0, "final": 0.5}, {0: 1.0, 100: 0.75, 200: 0.5}),
    ],
    ids=lambda value: str(value.get("kind", "")) if isinstance(value, dict) else "",
)
def test_key_points(settings: dict[str, object], points: dict[int, float]) -> None:
    rate = schedule(**settings)
    assert {step: rate.at(step) for step in points} == pytest.approx(points, abs=1e-12)


@pytest.mark.parametrize(
    ("settings", "epochs", "words"),
    [
        ({"warmup": {"epochs": 4}}, EPOCHS, "warm-up of 200 steps vs 200 steps of training"),
        ({"kind": "exponential", "decay_every": {"steps": 0}}, EPOCHS, "decay_every"),
        ({"kind": "exponential"}, Epochs(1000, 20, [(1, 40)]), r"changes by epoch: .*give decay_every\.steps"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(settings: dict[str, object], epochs: Epochs, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        build_schedule(ScheduleSettings.model_validate(settings), 200, epochs)


def test_a_schedule_can_be_drawn_without_tensorflow() -> None:
    code = (
        "import sys; from podline.training.schedules import Schedule;"
        "print(Schedule('cosine', 1.0, 2, 10, 0.0, 1.0, 1).at(2), 'tensorflow' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.split() == ["1.0", "False"]
