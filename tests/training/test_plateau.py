from __future__ import annotations

import pytest

from podline.documents.metrics_log import EvaluationLine, PlateauLine
from podline.recipes.settings import PlateauSettings
from podline.training.decisions import Plateau, plateau_line


def evaluation(step: int, loss: float, accuracy: float = 0.5) -> EvaluationLine:
    return EvaluationLine(
        step=step, epoch=step / 10, split="validation", examples=9, loss=loss, accuracy=accuracy, seconds=0.1, time=0.0
    )


def factors(settings: PlateauSettings, *losses: float) -> list[float]:
    """What the rate is multiplied by after each evaluation."""
    lines: list[PlateauLine] = []
    for loss in losses:
        lines.append(plateau_line(settings, lines[-1] if lines else None, evaluation(1, loss)))
    return [round(line.factor, 6) for line in lines]


@pytest.mark.parametrize(
    ("settings", "losses", "expected"),
    [
        # The first stall is the second evaluation; two in a row lower the rate, and then it takes two more.
        ({"factor": 0.5}, (1, 1, 1, 1, 1), [1, 1, 0.5, 0.5, 0.25]),
        ({"factor": 0.5}, (5, 4, 3, 2, 1), [1, 1, 1, 1, 1]),
        # An improvement starts the count again, and is measured from the best, not from the last.
        ({"factor": 0.5}, (5, 6, 4, 6, 5), [1, 1, 1, 1, 0.5]),
        # 0.995 is not 1 % below 1, 0.98 is.
        ({"factor": 0.5, "patience": 1}, (1, 0.995, 0.98), [1, 0.5, 0.5]),
        ({"factor": 0.5, "patience": 1, "least": 0.0}, (1, 0.995, 0.98), [1, 1, 1]),
        ({"factor": 0.1, "patience": 1, "floor": 0.05}, (1, 1, 1, 1), [1, 0.1, 0.05, 0.05]),
        ({"factor": 0.5, "patience": 1, "cooldown": 2}, (1, 1, 1, 1, 1), [1, 0.5, 0.5, 0.5, 0.25]),
    ],
)
def test_the_rate_is_lowered_when_the_metric_stalls(settings, losses, expected):
    assert factors(PlateauSettings(**settings), *losses) == expected


def test_at_the_floor_nothing_is_said_to_be_lowered():
    settings = PlateauSettings(factor=0.1, patience=1, floor=0.1)
    first = plateau_line(settings, None, evaluation(1, 1.0))
    second = plateau_line(settings, first, evaluation(2, 1.0))
    third = plateau_line(settings, second, evaluation(3, 1.0))
    assert [line.lowered for line in (first, second, third)] == [False, True, False]


def test_the_error_may_decide_instead_of_the_loss():
    settings = PlateauSettings(metric="error", patience=1)
    first = plateau_line(settings, None, evaluation(1, loss=1.0, accuracy=0.5))
    assert not plateau_line(settings, first, evaluation(2, loss=9.0, accuracy=0.6)).lowered
    assert plateau_line(settings, first, evaluation(2, loss=0.1, accuracy=0.5)).lowered


def test_a_plateau_goes_on_from_the_lines_of_its_run_and_says_what_it_does():
    settings, lines, said = PlateauSettings(factor=0.5), [], []
    whole = Plateau(settings, [], lines.append, lambda *news: said.append(news))
    for step in range(1, 6):
        whole.decide(evaluation(step, 1.0))
    for known in range(5):
        again = []
        rest = Plateau(settings, lines[:known], again.append, lambda *_: None)
        for step in range(known + 1, 6):
            rest.decide(evaluation(step, 1.0))
        assert [line.model_dump(exclude={"time"}) for line in lines[:known] + again] == [
            line.model_dump(exclude={"time"}) for line in lines
        ]
        assert rest.factor() == whole.factor() == 0.25
    assert [(event, step) for event, step, _ in said] == [("rate_lowered", 3), ("rate_lowered", 5)]
    assert "validation loss 1.0000 vs 1.0000 at best: the learning rate is lowered from 1 to 0.5" in said[0][2]


def test_without_settings_nothing_is_decided():
    lines = []
    plateau = Plateau(None, [], lines.append, lambda *_: None)
    plateau.decide(evaluation(1, 1.0))
    assert (lines, plateau.factor()) == ([], 1.0)
