from __future__ import annotations

import math

import pytest

from podline.documents.metrics_log import AnnealingLine, EvaluationLine
from podline.recipes.settings import AnnealingSettings
from podline.training.decisions import Annealing, annealing_line, in_words

TOTAL = 100


def evaluation(step: int, loss: float, accuracy: float = 0.5) -> EvaluationLine:
    return EvaluationLine(
        step=step, epoch=step / 10, split="validation", examples=9, loss=loss, accuracy=accuracy, seconds=0.1, time=0.0
    )


def decided(settings: AnnealingSettings, *losses: float, seed: int = 0) -> list[AnnealingLine]:
    lines: list[AnnealingLine] = []
    for number, loss in enumerate(losses):
        lines.append(annealing_line(settings, seed, TOTAL, lines[-1] if lines else None, evaluation(number, loss)))
    return lines


def test_what_is_better_is_always_accepted_and_what_is_far_worse_never():
    lines = decided(AnnealingSettings(temperature=0.001), 3.0, 2.0, 2.5, 2.0, 1.0, 9.0)
    assert [line.accepted for line in lines] == [True, True, False, True, True, False]
    assert [line.state for line in lines] == [0, 1, 1, 3, 4, 4]
    assert [line.against for line in lines] == [3.0, 2.0, 2.0, 2.0, 1.0, 1.0]
    assert [line.rise for line in lines] == [0, 0, 0.5, 0, 0, 8.0]


def test_a_worse_state_is_accepted_as_often_as_metropolis_says():
    settings = AnnealingSettings(temperature=0.2, final=1.0)
    first = annealing_line(settings, 0, TOTAL, None, evaluation(0, 1.0))
    accepted = 0
    for seed in range(2000):
        line = annealing_line(settings, seed, TOTAL, first, evaluation(1, 1.1))
        assert line.probability == pytest.approx(math.exp(-0.5))
        assert line.accepted == (line.draw < line.probability)
        accepted += line.accepted
    # Five standard errors of a share of 0.61 of 2,000.
    assert abs(accepted / 2000 - math.exp(-0.5)) < 5 * math.sqrt(0.61 * 0.39 / 2000)


def test_the_temperature_falls_by_the_same_factor_in_each_step():
    settings = AnnealingSettings(temperature=2.0, final=0.01)
    at = {step: annealing_line(settings, 0, TOTAL, None, evaluation(step, 1.0)).temperature for step in (0, 50, 100)}
    assert at == pytest.approx({0: 2.0, 50: 0.2, 100: 0.02})


def test_draws_depend_on_the_seed_and_the_number_alone():
    settings = AnnealingSettings()
    assert [line.draw for line in decided(settings, 3, 2, 1)] == [line.draw for line in decided(settings, 9, 9, 9)]
    assert len({line.draw for seed in range(3) for line in decided(settings, 3, 2, 1, seed=seed)}) == 9


def test_the_error_may_be_the_energy():
    settings = AnnealingSettings(energy="error")
    assert annealing_line(settings, 0, TOTAL, None, evaluation(1, 1.0, accuracy=0.75)).energy == 0.25


def test_a_rejected_state_is_gone_back_from_before_it_is_told():
    did: list[object] = []
    annealing = Annealing(
        AnnealingSettings(temperature=0.001),
        0,
        TOTAL,
        [],
        lambda line: did.append(line.kind),
        lambda event, step, words: did.append((event, step)),
        did.append,
    )
    assert annealing.accepted() is None
    annealing.decide(evaluation(10, 1.0))
    annealing.decide(evaluation(20, 2.0))
    assert did == ["annealing", ("accepted", 10), 10, "annealing", ("rejected", 20)]
    assert annealing.accepted() == 10


def test_decisions_in_words():
    kept, back = decided(AnnealingSettings(temperature=0.5, final=1.0), 1.0, 3.0)
    assert in_words(kept) == "step 0: energy 1.0000 is no higher than before: accepted"
    assert in_words(back) == (
        f"step 1: energy 3.0000 is 2.0000 higher: accepted with probability 0.02 at temperature 0.5, draw "
        f"{back.draw:.2f}: rejected; going back to the state of step 0"
    )
