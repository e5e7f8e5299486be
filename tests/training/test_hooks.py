from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from small_dataset import publish_dataset

from podline.documents.metrics_log import LogMark
from podline.errors import DivergenceError
from podline.kinds.classification.objective import Classification
from podline.recipes.durations import Duration
from podline.recipes.settings import Recipe
from podline.training import hooks
from podline.training.checkpoints import Arrays, TimeSpent
from podline.training.hooks import Evaluate, RunClock, SaveCheckpoints, WriteMetrics
from podline.training.loop import Stretch
from podline.training.plan import Plan, plan_training


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> Plan:
    """Three epochs of six steps of eight; evaluated every four steps."""
    manifest = publish_dataset(tmp_path_factory.mktemp("root"), train=50, test=9)
    recipe = Recipe(
        name="t", dataset="sample", batch_size=8, duration=Duration(epochs=3), evaluate_every=Duration(steps=4)
    )
    return plan_training(recipe, manifest)


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
    hook = WriteMetrics(lines.append, plan, every=5, clock=clock, objective=Classification())
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


def test_evaluations_come_when_they_are_due_and_at_the_end(plan):
    seen = []
    hook = Evaluate(seen.append, lambda line: None, plan, rehearse=float)
    for step in (2, 4, 6, 8, 17, 18):
        hook.after(stretch(step, 1.0))
    hook.at(0)
    assert seen == [4, 8, 18]
    assert hook.next_stop(4) == 8


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
