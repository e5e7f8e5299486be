"""The loop stops where a hook wants, tells each hook of every stretch, and ends at a request or a fault by name."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from small_dataset import publish_dataset, small_recipe

from podline.base.errors import DivergenceError, PreemptedError, SettingsError
from podline.documents.metrics_log import LogMark
from podline.kinds.classification.objective import ClassificationObjective
from podline.recipes.durations import Duration
from podline.training import hooks
from podline.training.checkpoints import Arrays, TimeSpent
from podline.training.hooks import RunClock, SaveCheckpoints, WriteMetrics
from podline.training.loop import Hook, StepsDone, Stretch, next_multiple, require_keys, run_loop, stop_on_sigterm
from podline.training.plan import Plan, plan_training


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> Plan:
    """Three epochs of six steps of eight; evaluated every four steps."""
    manifest = publish_dataset(tmp_path_factory.mktemp("root"), train=50, test=9)
    return plan_training(small_recipe(duration=Duration(epochs=3), evaluate_every=Duration(steps=4)), manifest)


def stretch(step: int, *losses: float, last: bool = False) -> Stretch:
    norms = np.arange(len(losses), dtype=np.float32)
    series = {
        "loss": np.array(losses, np.float32),
        "correct": np.full(len(losses), 2, np.float32),
        "gradient_norm": 5 * norms,
        "gradient_norm/stem": 3 * norms,
        "gradient_norm/classifier": 4 * norms,
    }
    return Stretch(series, seconds=0.5 * len(losses), waiting=0.1 * len(losses), step=step, last=last)


def test_a_line_of_metrics_says_what_the_stretch_was(plan):
    lines = []
    clock = RunClock(TimeSpent(wall=100.0, training=10.0, waiting=1.0), time.monotonic())
    hook = WriteMetrics(lines.append, plan, every=5, clock=clock, objective=ClassificationObjective())
    for member in (clock, hook):
        member.after(stretch(9, 1.0, 2.0, 6.0))
    [line] = lines
    assert (line.step, line.epoch, line.losses, line.loss) == (9, 1.5, (1.0, 2.0, 6.0), 3.0)
    assert line.accuracy == 6 / 24
    assert (line.gradient_norm, line.gradient_norms) == (5.0, {"stem": 3.0, "classifier": 4.0}), "means of 0, 1 and 2"
    assert line.learning_rate == plan.rate(8), "the rate that the last step was taken with"
    assert line.examples_per_second == pytest.approx(24 / 1.5)
    assert line.waiting == pytest.approx(0.2)
    assert line.seconds == pytest.approx(11.5)
    assert clock.read().waiting == pytest.approx(1.3)
    assert 100 <= clock.read().wall < 110
    assert [hook.next_stop(step) for step in (0, 4, 5)] == [5, 5, 10]


def saver(saved: list[int], arrays: Callable[[], Arrays] = dict, minutes: float = 1e6) -> SaveCheckpoints:
    folder = SimpleNamespace(save=lambda step, *_given: saved.append(step))
    clock = RunClock(TimeSpent(), time.monotonic())
    mark = LogMark(bytes=0, sha256="")
    return SaveCheckpoints(folder, arrays, lambda: mark, every_steps=6, every_minutes=minutes, clock=clock)  # type: ignore[arg-type]


def test_checkpoints_come_every_so_many_steps_or_minutes_and_when_the_loop_ends(monkeypatch):
    saved = []
    hook = saver(saved)
    for step in (4, 6, 8, 12, 14):
        hook.after(stretch(step, 1.0, last=step == 14))
    assert saved == [6, 12, 14]
    assert hook.next_stop(6) == 12
    now, saved = 1000.0, []
    monkeypatch.setattr(hooks.time, "monotonic", lambda: now)
    hook = saver(saved, minutes=2)
    for step, now in ((1, 1060.0), (2, 1121.0), (3, 1200.0), (4, 1242.0)):  # noqa: B007 (read by the clock)
        hook.after(stretch(step, 1.0))
    assert saved == [2, 4]


def test_no_checkpoint_is_written_of_numbers_that_are_not_finite():
    saved = []
    hook = saver(saved, lambda: {"seed": np.array([1]), "model/kernel": np.array([1.0, np.nan], np.float32)})
    with pytest.raises(DivergenceError, match="model/kernel holds numbers that are not finite after step 6"):
        hook.after(stretch(6, 1.0))
    assert saved == []


class Device:
    """Takes steps whose loss is their number; ``pace`` is what it says a step takes."""

    def __init__(self, pace: float = 0.01) -> None:
        self.step, self.pace, self.counts = 0, pace, []

    def advance(self, count: int) -> StepsDone:
        losses = np.arange(self.step + 1, self.step + count + 1, dtype=np.float32)
        self.step += count
        self.counts.append(count)
        return StepsDone({"loss": losses}, seconds=count * self.pace, waiting=count * self.pace / 4)


class Recorder(Hook):
    def __init__(self, every: int | None = None) -> None:
        self.every, self.seen = every, []

    def next_stop(self, step: int) -> int:
        return next_multiple(step, self.every) if self.every else super().next_stop(step)

    def after(self, stretch: Stretch) -> None:
        self.seen.append(stretch)

    def rehearse(self, stretch: Stretch) -> None:
        raise NotImplementedError


def run(device: Device, total: int, hooks: list[Hook], asked=lambda: False) -> None:
    run_loop(device.advance, 0, total, hooks=hooks, news=lambda step, part: None, asked_to_stop=asked)


def test_the_loop_stops_where_any_hook_wants_and_all_hooks_see_every_stretch():
    fours, sixes, never = Recorder(4), Recorder(6), Recorder()
    run(Device(), 13, [fours, sixes, never])
    assert [stretch.step for stretch in never.seen] == [4, 6, 8, 12, 13]
    assert fours.seen == sixes.seen == never.seen
    assert [stretch.first for stretch in never.seen] == [0, 4, 6, 8, 12]
    assert [stretch.last for stretch in never.seen] == [False] * 4 + [True]
    assert np.concatenate([stretch.series["loss"] for stretch in never.seen]).tolist() == list(range(1, 14))


@pytest.mark.parametrize(("pace", "most"), [(0.4, 2), (2.5, 1)])
def test_slow_steps_come_in_short_parts_and_add_up_to_the_same_stretches(pace: float, most: int):
    device, recorder = Device(pace=pace), Recorder(10)
    run(device, 10, [recorder])
    assert max(device.counts) == most, "a part is about a second"
    [stretch] = recorder.seen
    assert stretch.steps == 10
    assert stretch.seconds == pytest.approx(10 * pace)
    assert stretch.waiting == pytest.approx(10 * pace / 4)


@pytest.mark.parametrize("when", ["while the hooks are at work", "after the hooks"])
def test_hooks_know_of_a_request_to_end_whenever_it_comes(when: str):
    asked, left = threading.Event(), []

    class Leaving(Recorder):
        def after(self, stretch: Stretch) -> None:
            super().after(stretch)
            asked.set()

        def leaving(self, stretch: Stretch) -> None:
            left.append(stretch)

    # How often it was asked, after the hooks were at work; the last time is that at the top of the next stretch.
    answers = iter([True] if when == "while the hooks are at work" else [False, True, True])
    leaving = Leaving(4)
    with pytest.raises(PreemptedError, match="at step 4 of 20"):
        run(Device(), 20, [leaving], asked=lambda: asked.is_set() and next(answers))
    assert left == leaving.seen
    assert (left[0].step, left[0].last) == (4, False)


def test_sigterm_is_a_request_while_the_body_runs_and_what_it_was_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_sigterm() as asked:
        assert not asked()
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_hook_that_reads_what_no_step_tells_is_refused_by_name():
    class Picky(Recorder):
        reads = ("loss", "depth")

    require_keys([Recorder(), Picky()], ("loss", "correct", "depth"))
    with pytest.raises(SettingsError, match=r"the hook Picky reads 'depth', expected one of loss, correct"):
        require_keys([Recorder(), Picky()], ("loss", "correct"))
