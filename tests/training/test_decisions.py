"""Decisions by evaluations are those of Keras and of their papers, and go on from the lines of a run."""

from __future__ import annotations

import math
from typing import Any

import keras
import pytest

from podline.documents.metrics_log import AnnealingLine, EarlyStopLine, EvaluationLine, PlateauLine
from podline.recipes.schedule_settings import PlateauSettings
from podline.recipes.settings import AnnealingSettings, EarlyStopSettings
from podline.stages.specs import Pruning
from podline.training.decisions import Plateau, Pruner, annealing_line, early_stop_line, plateau_line

TOTAL = 100
DUE = range(10, TOTAL + 1, 10)


def evaluation(step: int, loss: float, accuracy: float = 0.5) -> EvaluationLine:
    figures = {"loss": loss, "accuracy": accuracy, "measures": {"top1": loss}}
    return EvaluationLine(step=step, epoch=1.0, split="validation", examples=9, seconds=0.1, time=0.0, **figures)


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


def factors(settings: PlateauSettings, *losses: float) -> list[float]:
    """What the rate is multiplied by after each evaluation."""
    lines: list[PlateauLine] = []
    for loss in losses:
        lines.append(plateau_line(settings, lines[-1] if lines else None, evaluation(1, loss), 0.1))
    return [round(line.factor, 6) for line in lines]


@pytest.mark.parametrize(
    ("settings", "losses", "expected"),
    [
        # 0.995 is not 1 % below 1, 0.98 is.
        ({"factor": 0.5, "patience": 1}, (1, 0.995, 0.98), [1, 0.5, 0.5]),
        ({"factor": 0.5, "patience": 1, "min_delta_share": 0.0}, (1, 0.995, 0.98), [1, 1, 1]),
        # A negative loss improves when it falls too: -2.01 is not 1 % below -2, and -1.99 is no better at all.
        ({"factor": 0.5, "patience": 1}, (-2, -2.01, -1.99, -2.03), [1, 0.5, 0.25, 0.25]),
        ({"factor": 0.5, "patience": 2}, (0.01, -0.01, -0.02, -0.03), [1, 1, 1, 1]),
        ({"factor": 0.1, "patience": 1, "min_rate_share": 0.05}, (1, 1, 1, 1), [1, 0.1, 0.05, 0.05]),
        ({"metric": "top1", "factor": 0.5, "patience": 1}, (0.5, 0.6, 0.55), [1, 1, 0.5]),
    ],
)
def test_a_plateau_lowers_the_rate_where_keras_s_has_no_such_setting(settings, losses, expected):
    assert factors(PlateauSettings(**settings), *losses) == expected


def test_a_plateau_goes_on_from_the_lines_of_its_run():
    settings, lines, said = PlateauSettings(factor=0.5), [], []
    whole = Plateau(settings, [], lines.append, lambda event, step, _words: said.append((event, step)), lambda _: 0.1)
    for step in range(1, 6):
        whole.decide(evaluation(step, 1.0))
    for known in range(5):
        again = []
        rest = Plateau(settings, lines[:known], again.append, lambda *_: None, lambda _: 0.1)
        for step in range(known + 1, 6):
            rest.decide(evaluation(step, 1.0))
        assert [(line.step, line.factor) for line in again] == [(line.step, line.factor) for line in lines[known:]]
        assert rest.factor() == whole.factor() == 0.25
    assert said == [("rate_lowered", 3), ("rate_lowered", 5)]


def stops(settings: EarlyStopSettings, *losses: float, begins: int = 0) -> list[EarlyStopLine]:
    """The decisions about evaluations after 10, 20, … of 100 steps; the last phase begins at one of them."""
    lines: list[EarlyStopLine] = []
    for number, loss in enumerate(losses, start=1):
        last = lines[-1] if lines else None
        lines.append(early_stop_line(settings, DUE, begins, last, evaluation(10 * number, loss, accuracy=1 - loss)))
    return lines


@pytest.mark.parametrize(
    ("settings", "losses", "stopped", "state"),
    [
        # 0.995 is not 1 % below 1, 0.98 is.
        ({"patience": 1, "min_delta_share": 0.01}, (1, 0.995), 20, 10),
        ({"patience": 1, "min_delta_share": 0.01}, (1, 0.98), None, 20),
        ({"patience": 1, "min_delta_share": 0.05}, (-3, -3.1), 20, 10),
        # Of 9 examples, errors up to 0.14 above one of 0.25 are within a standard error: the latest such state is kept.
        ({"patience": 1, "metric": "error"}, (0.5, 0.5), 20, 20),
        ({"patience": 9, "metric": "error"}, (0.5, 0.25, 0.39, 0.4, 0.3, 0.5, 0.5, 0.5, 0.5, 0.5), None, 50),
        # At the end of the run nothing stops early, and the best state is gone back to all the same.
        ({"patience": 9}, (9, 8, 7, 6, 5, 4, 3, 2, 1, 3), None, 90),
        ({"patience": 0.25}, (3, 2, 2, 2, 2), 50, 20),
        ({"patience": 2, "metric": "top1"}, (0.3, 0.5, 0.4, 0.4), 40, 20),
        ({"patience": None}, (9, 1, 2, 3, 4, 5, 6, 7, 8, 9), None, 20),
    ],
)
def test_a_run_ends_when_the_metric_stalls(settings, losses, stopped, state):
    lines = stops(EarlyStopSettings(**settings), *losses)
    assert next((line.step for line in lines if line.stopped), None) == stopped
    assert (lines[-1].state, lines[-1].restored) == (state, bool(stopped) or len(losses) == 10)
    assert not any(line.restored for line in lines[:-1])
    kept = EarlyStopSettings(**settings, restore=False)
    assert [line.restored for line in stops(kept, *losses)] == [False] * len(losses)


def test_a_run_ends_early_only_in_its_last_phase():
    settings = EarlyStopSettings(patience=2)
    assert [line.step for line in stops(settings, 1, 2, 3, 4, 5, 6, begins=40) if line.stopped] == [60]


@pytest.mark.parametrize(
    ("limits", "losses", "pruned"),
    [
        ((None, 2.0), (3.0, 2.5), "step 20"),
        # The best so far counts, not the last.
        ((None, 2.0), (1.5, 2.5), ""),
        # What no limit is known for goes on, and so does the end of the run.
        ((1.0,) * 10, (9.0,) * 10, "step 10"),
        ((None,) * 9 + (1.0,), (9.0,) * 10, ""),
    ],
)
def test_a_trial_whose_best_is_above_the_limit_is_pruned(limits, losses, pruned):
    lines = [evaluation(10 * number, loss) for number, loss in enumerate(losses, start=1)]
    at_once = Pruner(Pruning(metric="loss", limits=limits), TOTAL, lines)
    later = Pruner(Pruning(metric="loss", limits=limits), TOTAL, lines[:1])
    for line in lines[1:]:
        later.decide(line)
    assert at_once.reason == later.reason
    assert pruned in at_once.reason
    assert bool(at_once.reason) == bool(pruned)


def beside_keras(callback: Any) -> keras.Model:
    """A model whose rate is 0.1 and whose training a callback of Keras follows."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    callback.set_model(model)
    callback.on_train_begin()
    return model


@pytest.mark.parametrize("options", [{}, {"cooldown": 1}, {"min_delta": 0.1, "patience": 1}, {"min_lr": 0.02}])
def test_a_plateau_lowers_the_rate_as_keras_does(options: dict[str, Any]) -> None:
    given = {"factor": 0.5, "patience": 2} | options
    settings = PlateauSettings(**{"min_delta": 1e-4, "min_lr": 0.0} | given)
    callback = keras.callbacks.ReduceLROnPlateau("loss", **given)
    model, line = beside_keras(callback), None
    for epoch, loss in enumerate([1.0, 0.9, 0.95, 0.9, 0.85, *[0.9] * 4, 0.84, *[0.9] * 6]):
        callback.on_epoch_end(epoch, {"loss": loss})
        line = plateau_line(settings, line, evaluation(epoch + 1, loss), 0.1)
        assert 0.1 * line.factor == pytest.approx(float(model.optimizer.learning_rate))


@pytest.mark.parametrize("options", [{"patience": 2}, {"patience": 1, "min_delta": 0.1}])
def test_a_run_stops_and_keeps_the_epoch_that_keras_would(options: dict[str, Any]) -> None:
    callback = keras.callbacks.EarlyStopping("loss", restore_best_weights=True, **options)
    model, line = beside_keras(callback), None
    for epoch, loss in enumerate([1.0, 0.8, 0.75, 0.7, 0.72, 0.69, 0.7, 0.75, 0.8, 0.9]):
        callback.on_epoch_end(epoch, {"loss": loss})
        line = early_stop_line(EarlyStopSettings(**options), range(1, 11), 0, line, evaluation(epoch + 1, loss))
        assert line.stopped == bool(model.stop_training)
        if line.stopped:
            break
    assert line is not None
    assert line.stopped
    assert line.state == callback.best_epoch + 1
