"""Decisions by evaluations are Keras's and the papers', and a run that takes them may be broken off anywhere."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import keras
import numpy as np
import pytest
from dying_runs import arrays_of, finished_after, killed_at, lively_recipe, losses, require_same, specs_of, unbroken
from small_dataset import FINGERPRINT, drawn, publish_dataset
from support.extending import install

from podline.base.errors import PreemptedError, PrunedError, SettingsError
from podline.base.progress import silent
from podline.documents.metrics_log import (
    AnnealingLine,
    EarlyStopLine,
    EvaluationLine,
    PlateauLine,
    StepsLine,
    read_events,
)
from podline.recipes import measures
from podline.recipes.measures import Measure
from podline.recipes.parts import Loaded
from podline.recipes.schedule_settings import PlateauSettings
from podline.recipes.settings import AnnealingSettings, EarlyStopSettings
from podline.stages.from_recipe import training_spec
from podline.stages.specs import Pruning, TrainSpec
from podline.store.opening import open_store
from podline.training.decisions import Plateau, Pruner, annealing_line, early_stop_line, plateau_line
from podline.training.steps import ScoringSteps
from podline.training.train import train
from tests.support.metrics import evaluation_line, read_metrics

TOTAL = 100
DUE = range(10, TOTAL + 1, 10)


def evaluation(step: int, loss: float, accuracy: float = 0.5) -> EvaluationLine:
    return evaluation_line(step, loss, accuracy=accuracy, examples=9, measures={"top1": loss})


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
    schedule, lines, said = SimpleNamespace(plateau=PlateauSettings(factor=0.5)), [], []
    run: Any = SimpleNamespace(
        recipe=SimpleNamespace(schedule=schedule),
        plan=SimpleNamespace(rate=lambda _: 0.1),
        tell=lambda event, step, _words: said.append((event, step)),
    )
    whole = Plateau(run, [], lines.append)
    for step in range(1, 6):
        whole.decide(evaluation(step, 1.0))
    told = [*said]
    for known in range(5):
        again = []
        rest = Plateau(run, lines[:known], again.append)
        for step in range(known + 1, 6):
            rest.decide(evaluation(step, 1.0))
        assert [(line.step, line.factor) for line in again] == [(line.step, line.factor) for line in lines[known:]]
        assert rest.factor() == whole.factor() == 0.25
    assert told == [("rate_lowered", 3), ("rate_lowered", 5)]


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


# 96 examples, of which 24 are held out: 9 steps of 8 an epoch; a checkpoint at 8, 16, 24 and at the end.
spec_with = specs_of(
    lively_recipe(
        duration={"steps": 30},
        # No loss halves in four steps: the rate is lowered at every other evaluation.
        schedule={
            "kind": "plateau",
            "learning_rate": 0.001,
            "plateau": {"factor": 0.5, "patience": 1, "min_delta_share": 0.5},
        },
        validation_share=0.25,
        evaluate_every={"steps": 4},
        checkpoint_steps=8,
        summary_steps=5,
    )
)


def spec_of(root: Path, **values) -> TrainSpec:
    """A spec on labels that nothing can be learned from, so that validation stalls and gets worse."""
    labels = np.random.default_rng(5).integers(0, 3, 96)
    publish_dataset(root, splits={"train": drawn(96, 0) | {"label": labels}, "test": drawn(40, 1)})
    return spec_with(root, **values)


def test_the_rate_follows_the_decisions_and_these_are_told_everywhere(tmp_path):
    spec, _, folder = unbroken(spec_of(tmp_path))
    lines = read_metrics(folder / "metrics.jsonl")
    decisions = [line for line in lines if isinstance(line, PlateauLine)]
    evaluations = [line for line in lines if isinstance(line, EvaluationLine)]
    assert [line.step for line in decisions] == [line.step for line in evaluations] == [4, 8, 12, 16, 20, 24, 28, 30]
    assert {(line.split, line.examples) for line in evaluations} == {("validation", 24)}
    assert [line.value for line in decisions] == [line.loss for line in evaluations]
    assert decisions[-1].factor <= 0.25
    told = [event.step for event in read_events(folder / "events.jsonl") if event.event == "rate_lowered"]
    assert told == [line.step for line in decisions if line.lowered]
    for line in lines:
        if isinstance(line, StepsLine):
            before = [decision.factor for decision in decisions if decision.step < line.step]
            assert line.learning_rate == spec.recipe.schedule.learning_rate * (before or [1.0])[-1]


# Hot enough to accept some states that are worse, and a rate that makes many worse.
ANNEALED = {
    "schedule": {"kind": "constant", "learning_rate": 0.002},
    "optimizer": {"kind": "adam"},
    "annealing": {"temperature": 0.05, "final": 0.1},
    "ema_decay": 0.0,
}


@pytest.fixture(scope="module")
def annealed(tmp_path_factory):
    """A run that goes back several times."""
    return unbroken(spec_of(tmp_path_factory.mktemp("annealed"), **ANNEALED))


def decisions_of(folder: Path) -> list[AnnealingLine]:
    return [line for line in read_metrics(folder / "metrics.jsonl") if isinstance(line, AnnealingLine)]


def test_states_are_accepted_or_rejected_and_what_is_kept_is_the_state_accepted_last(annealed):
    """Its optimizer and its generator included."""
    _, _, folder = annealed
    decisions = decisions_of(folder)
    assert [line.step for line in decisions] == [4, 8, 12, 16, 20, 24, 28, 30]
    # Of those that are worse, some are accepted: at 16 and 28.
    assert {(line.accepted, line.rise > 0) for line in decisions} == {(True, False), (True, True), (False, True)}
    lines = read_metrics(folder / "metrics.jsonl")
    assert [loss for line in lines if isinstance(line, StepsLine) for loss in line.losses] == losses(folder)
    assert len(losses(folder)) == 30, "the steps of a rejected state stay in the record"
    told = [(event.event, event.step) for event in read_events(folder / "events.jsonl")]
    expected = [("accepted" if line.accepted else "rejected", line.step) for line in decisions]
    assert told == [("started", 0), *expected, ("finished", 30)]
    [*_, last] = decisions
    assert (last.accepted, last.state) == (False, 28)
    accepted, final = arrays_of(folder, last.state), arrays_of(folder, 30)
    assert {name for name in accepted if accepted[name].tobytes() != final[name].tobytes()} == {"steps"}


def test_a_checkpoint_whose_accepted_one_is_damaged_is_passed_over(annealed, tmp_path):
    spec = spec_of(tmp_path, **ANNEALED)
    assert [line.state for line in decisions_of(annealed[2]) if line.step in (16, 20, 24)] == [16, 16, 16]
    killed_at(spec, 26)
    accepted = tmp_path / spec.folder / "checkpoints" / "step-00000016.npz"
    accepted.write_bytes(accepted.read_bytes()[:-100])
    require_same(spec, train(spec, silent()), annealed)
    events = read_events(tmp_path / spec.folder / "events.jsonl")
    damaged = [event for event in events if event.event == "checkpoint_damaged"]
    assert [event.step for event in damaged] == [24, 16]
    assert all(str(accepted) in event.message for event in damaged)


# The loss on labels that nothing can be learned from soon gets worse at this rate.
WORSE = {"schedule": {"kind": "constant", "learning_rate": 0.02}, "optimizer": {"kind": "adam"}, "ema_decay": 0.0}
STOPPED = WORSE | {"early_stop": {"patience": 2}}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that ends before its time."""
    return unbroken(spec_of(tmp_path_factory.mktemp("stopped"), keep="all", **STOPPED))


def checkpoints(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("step-")) for path in (folder / "checkpoints").glob("*.npz"))


def test_a_run_that_gets_no_better_ends_early_with_its_best_state(stopped):
    spec, result, folder = stopped
    decisions = [line for line in read_metrics(folder / "metrics.jsonl") if isinstance(line, EarlyStopLine)]
    last = decisions[-1]
    assert last.stopped
    assert last.restored
    assert last.state < last.step < spec.recipe.duration.steps
    assert (result.steps, len(losses(folder))) == (last.step, last.step)
    assert result.ending in result.lines()
    assert f"ended early at step {last.step} of 30" in result.ending
    events = [(event.event, event.step) for event in read_events(folder / "events.jsonl")]
    assert events == [("started", 0), ("stopped_early", last.step), ("finished", last.step)]
    evaluated = [line.step for line in read_metrics(folder / "metrics.jsonl") if isinstance(line, EvaluationLine)]
    assert checkpoints(folder) == evaluated, "if all are kept"
    # The last checkpoint is the best state, and training further begins with what was exported.
    best, end = arrays_of(folder, last.state), arrays_of(folder, last.step)
    assert {name for name in best if best[name].tobytes() != end[name].tobytes()} == {"steps"}
    weights = np.load(folder / "model" / "weights.npz")
    assert all(weights[name].tobytes() == best[f"model/{name}"].tobytes() for name in weights.files)


@pytest.mark.parametrize(
    ("name", "values", "steps"),
    [("annealed", ANNEALED, (6, 13, 21, 29)), pytest.param("stopped", STOPPED, (3, 7, 9, 12), marks=pytest.mark.slow)],
)
def test_a_run_killed_between_its_decisions_ends_with_the_same_bits(request, tmp_path, name, values, steps):
    expected, spec = request.getfixturevalue(name), spec_of(tmp_path, **values)
    require_same(spec, finished_after(spec, *steps), expected)
    assert checkpoints(tmp_path / spec.folder)[-1] == checkpoints(expected[2])[-1]


@pytest.mark.parametrize(
    ("name", "values", "broken"),
    [("annealed", ANNEALED, 12), pytest.param("stopped", STOPPED, None, marks=pytest.mark.slow)],
)
def test_an_evaluation_that_sigterm_broke_off_is_made_up_for_and_decided(
    request, tmp_path, monkeypatch, name, values, broken
):
    """That of step 12, or the last before an early end."""
    expected = _, result, folder = request.getfixturevalue(name)
    spec, step = spec_of(tmp_path, **values), broken or result.steps
    score, calls = ScoringSteps.score, []

    def interrupted(self, batches, count, news):
        calls.append(1)
        if 4 * len(calls) == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return score(self, batches, count, news)

    monkeypatch.setattr(ScoringSteps, "score", interrupted)
    with pytest.raises(PreemptedError, match=f"at step {step} of 30"):
        train(spec, silent())
    monkeypatch.undo()
    require_same(spec, train(spec, silent()), expected)
    final = f"checkpoints/step-{result.steps:08d}.npz"
    assert (tmp_path / spec.folder / final).read_bytes() == (folder / final).read_bytes()


def test_a_hopeless_trial_of_a_search_ends_and_can_be_trained_to_its_end_later(tmp_path):
    whole, spec = (spec_of(tmp_path / name, **WORSE) for name in ("whole", "pruned"))
    hopeless = spec.changed(pruning=Pruning(metric="loss", limits=(None, 0.1)))
    assert hopeless.run == whole.run
    for _ in range(2):  # the second start finds it ended
        with pytest.raises(PrunedError, match=r"pruned at step 8 of 30: loss [\d.]+ vs 0\.1000"):
            train(hopeless, silent())
    folder = tmp_path / "pruned" / spec.folder
    assert checkpoints(folder) == [8]
    events = [event.event for event in read_events(folder / "events.jsonl")]
    assert events == ["started", "pruned", "restored", "pruned"]
    assert "pruning" not in (folder / "spec.json").read_text()
    assert train(spec, silent()).weights_sha256 == train(whole, silent()).weights_sha256


MEASURED = {
    "schedule": {"kind": "restarts", "learning_rate": 0.002, "period": {"steps": 7}},
    "early_stop": {"metric": "top1", "patience": 3},
    "measures": ("calibration_error",),
    "accumulate": 2,
    "keep": 2,
}


def test_a_run_stops_by_any_measure_of_the_held_out_examples_killed_or_not(tmp_path):
    expected = _, result, folder = unbroken(spec_of(tmp_path / "whole", **MEASURED))
    evaluations = [line for line in read_metrics(folder / "metrics.jsonl") if isinstance(line, EvaluationLine)]
    for line in evaluations:
        assert line.measures.keys() == {"top1", "calibration_error"}
        assert line.measures["top1"] == pytest.approx(line.accuracy)
        assert 0 < line.measures["calibration_error"] < 1
    best = max(line.measures["top1"] for line in evaluations)
    stops = [line for line in read_metrics(folder / "metrics.jsonl") if isinstance(line, EarlyStopLine)]
    assert stops[-1].best == best
    assert stops[-1].state == next(line.step for line in evaluations if line.measures["top1"] == best)
    assert "with the best top1" in result.ending
    assert checkpoints(folder)[:-2] == [stops[-1].state], "two are kept, and the best"
    again = spec_of(tmp_path / "killed", **MEASURED)
    require_same(again, finished_after(again, 6, 13), expected)


def test_a_measure_that_raises_does_so_before_the_first_step_on_all_held_out_targets(tmp_path, monkeypatch):
    seen = []
    odd = Measure("odd", "odd", compute=lambda said: seen.append(said.labels) or sys.exit("no licence"))
    monkeypatch.setattr(measures, "loaded", lambda: Loaded({"odd": odd}, ()))
    with pytest.raises(SettingsError, match=r"got measure 'auc' for sample, expected one of loss, error, odd"):
        train(spec_of(tmp_path, measures=("auc",)), silent())
    spec = spec_of(tmp_path, measures=("odd",), evaluation_batch_size=2).changed(preflight=True)
    with pytest.raises(SettingsError, match=r"measure odd .*no licence"):
        train(spec, silent())
    [labels] = seen
    assert len(labels) == 24
    assert not (tmp_path / spec.folder / "metrics.jsonl").read_text()


SIXTEEN = """
import os
from podline.training.loop import Hook

class AtSixteen(Hook):
    __init__ = after = rehearse = lambda self, _: None

    def stop(self, stretch):
        return "enough" if stretch.step >= 16 and "GO_ON" not in os.environ else ""
"""


def test_a_hook_stops_a_run_which_a_killed_one_remembers(tmp_path, monkeypatch):
    install(tmp_path, {"my_stop": SIXTEEN}, '[project.entry-points."podline.hooks"]\nsixteen = "my_stop:AtSixteen"\n')
    monkeypatch.syspath_prepend(tmp_path)
    values = {"schedule": {"kind": "constant", "learning_rate": 0.002}, "hooks": ("sixteen",)}

    def coded(root: Path) -> TrainSpec:
        """The spec as it is planned, with the digest of the hook's code."""
        recipe = spec_of(root, **values).recipe
        return training_spec(open_store(str(root)), recipe, FINGERPRINT, "cpu").changed(preflight=False)

    expected = _, result, _ = unbroken(coded(tmp_path / "whole"))
    assert result.ending.startswith("ended early at step 16 by hook sixteen (my_stop:AtSixteen of my_stop): enough")
    again = coded(tmp_path / "killed")
    killed_at(again, 12)
    with monkeypatch.context() as late:
        late.setattr("podline.training.train.export_model", Mock(side_effect=OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            train(again, silent())
    monkeypatch.setenv("GO_ON", "1")
    require_same(again, train(again, silent()), expected)
