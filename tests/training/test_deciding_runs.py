"""Runs that decide by held-out examples say why, and end with the same bits however often they are broken off."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from dying_runs import bare_metrics, finished_after, killed_at, lively_recipe, losses, specs_of, unbroken
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
from podline.stages.from_recipe import training_spec
from podline.stages.specs import Pruning, TrainSpec
from podline.store.opening import open_store
from podline.training.steps import ScoringSteps
from podline.training.train import train
from tests.support.metrics import read_metrics

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


def arrays_of(folder: Path, step: int) -> dict[str, np.ndarray]:
    """A checkpoint's arrays."""
    with np.load(folder / "checkpoints" / f"step-{step:08d}.npz") as arrays:
        return dict(arrays)


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
    _, result, folder = annealed
    spec = spec_of(tmp_path, **ANNEALED)
    assert [line.state for line in decisions_of(folder) if line.step in (16, 20, 24)] == [16, 16, 16]
    killed_at(spec, 26)
    accepted = tmp_path / spec.folder / "checkpoints" / "step-00000016.npz"
    accepted.write_bytes(accepted.read_bytes()[:-100])
    assert train(spec, silent()).weights_sha256 == result.weights_sha256
    assert bare_metrics(tmp_path / spec.folder) == bare_metrics(folder)
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
    _, result, folder = request.getfixturevalue(name)
    spec = spec_of(tmp_path, **values)
    again = finished_after(spec, *steps)
    assert (again.weights_sha256, again.ending) == (result.weights_sha256, result.ending)
    assert bare_metrics(tmp_path / spec.folder) == bare_metrics(folder)
    assert checkpoints(tmp_path / spec.folder)[-1] == checkpoints(folder)[-1]


@pytest.mark.parametrize(
    ("name", "values", "broken"),
    [("annealed", ANNEALED, 12), pytest.param("stopped", STOPPED, None, marks=pytest.mark.slow)],
)
def test_an_evaluation_that_sigterm_broke_off_is_made_up_for_and_decided(
    request, tmp_path, monkeypatch, name, values, broken
):
    """That of step 12, or the last before an early end."""
    _, result, folder = request.getfixturevalue(name)
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
    assert train(spec, silent()).weights_sha256 == result.weights_sha256
    assert bare_metrics(tmp_path / spec.folder) == bare_metrics(folder)
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
    _, result, folder = unbroken(spec_of(tmp_path / "whole", **MEASURED))
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
    assert finished_after(again, 6, 13).weights_sha256 == result.weights_sha256
    assert bare_metrics(tmp_path / "killed" / again.folder) == bare_metrics(folder)


def test_a_measure_that_raises_does_so_before_the_first_step_on_all_held_out_targets(tmp_path, monkeypatch):
    seen = []
    odd = Measure("odd", "odd", compute=lambda said: seen.append(said.labels) or sys.exit("no licence"))
    monkeypatch.setattr(measures, "loaded", lambda: Loaded({"odd": odd}, ()))
    with pytest.raises(SettingsError, match=r"got measure 'auc' for sample, expected loss or odd"):
        train(spec_of(tmp_path, measures=("auc",)), silent())
    spec = spec_of(tmp_path, measures=("odd",), evaluation_batch_size=2).changed(preflight=True)
    with pytest.raises(SettingsError, match=r"measure odd .*no licence"):
        train(spec, silent())
    [labels] = seen
    assert len(labels) == 24
    assert not (tmp_path / spec.folder / "metrics.jsonl").read_text()


SIXTEEN = """
import os

from podline.training.loop import Hook, next_multiple


class AtSixteen(Hook):
    def __init__(self, run):
        pass

    def next_stop(self, step):
        return next_multiple(step, 4)

    def after(self, stretch):
        pass

    def stop(self, stretch):
        return "enough" if stretch.step >= 16 and "GO_ON" not in os.environ else ""

    def rehearse(self, stretch):
        pass
"""


def test_a_hook_stops_a_run_which_a_killed_one_remembers(tmp_path, monkeypatch):
    install(tmp_path, {"my_stop": SIXTEEN}, '[project.entry-points."podline.hooks"]\nsixteen = "my_stop:AtSixteen"\n')
    monkeypatch.syspath_prepend(tmp_path)
    values = {"schedule": {"kind": "constant", "learning_rate": 0.002}, "hooks": ("sixteen",)}

    def coded(root: Path) -> TrainSpec:
        """The spec as it is planned, with the digest of the hook's code."""
        recipe = spec_of(root, **values).recipe
        return training_spec(open_store(str(root)), recipe, FINGERPRINT, "cpu").changed(preflight=False)

    _, result, folder = unbroken(coded(tmp_path / "whole"))
    assert result.steps == 16
    assert result.ending.startswith("ended early at step 16 by hook sixteen (my_stop:AtSixteen of my_stop): enough")
    again = coded(tmp_path / "killed")
    killed_at(again, 12)
    with monkeypatch.context() as late:
        late.setattr("podline.training.train.export_model", Mock(side_effect=OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            train(again, silent())
    monkeypatch.setenv("GO_ON", "1")
    assert train(again, silent()).weights_sha256 == result.weights_sha256
    assert bare_metrics(tmp_path / "killed" / again.folder) == bare_metrics(folder)
