from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from podline.errors import PreemptedError, SettingsError
from podline.training import run as training
from podline.training.loop import Hook, StepsDone, Stretch, next_multiple, require_keys, run_loop, stop_on_sigterm


class Device:
    """Takes steps whose loss is their number; ``pace`` is what it says a step takes."""

    def __init__(self, start: int = 0, pace: float = 0.01) -> None:
        self.step, self.pace, self.counts = start, pace, []

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


def run(device: Device, total: int, hooks: list[Hook], asked=lambda: False, start: int = 0) -> list[int]:
    news = []
    run_loop(device.advance, start, total, hooks=hooks, news=lambda step, part: news.append(step), asked_to_stop=asked)
    return news


def test_the_loop_stops_where_any_hook_wants_and_all_hooks_see_every_stretch():
    fours, sixes, never = Recorder(4), Recorder(6), Recorder()
    run(Device(), 13, [fours, sixes, never])
    assert [stretch.step for stretch in never.seen] == [4, 6, 8, 12, 13]
    assert fours.seen == sixes.seen == never.seen
    assert [stretch.first for stretch in never.seen] == [0, 4, 6, 8, 12]
    assert [stretch.last for stretch in never.seen] == [False] * 4 + [True]
    assert np.concatenate([stretch.series["loss"] for stretch in never.seen]).tolist() == list(range(1, 14))


def test_a_run_that_goes_on_has_the_stops_that_it_would_have_had():
    rest = Recorder(4)
    run(Device(5), 13, [rest], start=5)
    assert [stretch.step for stretch in rest.seen] == [8, 12, 13]


@pytest.mark.parametrize(("pace", "most"), [(0.4, 2), (2.5, 1)])
def test_slow_steps_come_in_short_parts_and_add_up_to_the_same_stretches(pace: float, most: int):
    device, recorder = Device(pace=pace), Recorder(10)
    run(device, 10, [recorder])
    assert max(device.counts) == most, "a part is about a second"
    [stretch] = recorder.seen
    assert stretch.steps == 10
    assert stretch.seconds == pytest.approx(10 * pace)
    assert stretch.waiting == pytest.approx(10 * pace / 4)


def test_the_first_part_is_one_step_and_the_end_is_always_told():
    device = Device(pace=0.001)
    news = run(device, 500, [Recorder(100)])
    assert (device.counts[0], news[0], news[-1]) == (1, 1, 500)


def test_a_run_that_is_asked_to_end_shows_its_hooks_the_steps_so_far_and_raises():
    device, recorder = Device(pace=0.5), Recorder(10)
    with pytest.raises(PreemptedError, match="at step 3 of 20"):
        run(device, 20, [recorder], asked=lambda: device.step >= 3)
    [stretch] = recorder.seen
    assert (stretch.step, stretch.last) == (3, True)


def test_a_run_that_is_asked_to_end_before_its_first_step_takes_none():
    device, recorder = Device(), Recorder()
    with pytest.raises(PreemptedError, match="at step 0 of 20"):
        run(device, 20, [recorder], asked=lambda: True)
    assert (device.counts, recorder.seen) == ([], [])


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


def test_outside_the_main_thread_signals_are_left_alone():
    before, answers = signal.getsignal(signal.SIGTERM), []

    def body() -> None:
        with stop_on_sigterm() as asked:
            answers.append((asked(), signal.getsignal(signal.SIGTERM)))

    (thread := threading.Thread(target=body)).start()
    thread.join()
    assert answers == [(False, before)]


class Picky(Recorder):
    reads = ("loss", "depth")


def test_a_hook_that_reads_what_no_step_tells_is_refused_by_name():
    require_keys([Recorder(), Picky()], ("loss", "correct", "depth"))
    with pytest.raises(SettingsError, match=r"the hook Picky reads 'depth', expected one of loss, correct"):
        require_keys([Recorder(), Picky()], ("loss", "correct"))


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

    monkeypatch.setattr(training.PhasedSteps, "_enter", enter)
    fake = SimpleNamespace(reporter=SimpleNamespace(pace=said.append))
    steps = training.PhasedSteps(cast(training.Run, fake), 0, lambda: 1.0)
    for count in (1, 2, 4, 1):
        steps.advance(count)
    assert said == [None, "steps", None, 16.0, "steps", None, 4 * 4.5, "steps", None, 1.0, "steps", None]
