"""Ten undisturbed nights raise no alarm; of ten with planted losses each has them in their class, and names them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from dying_runs import Killed
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline import stopwatch
from podline.data.reader import SplitReader
from podline.documents.ledger_entry import Entry
from podline.errors import ChildKilledError
from podline.ledger.recording import recorded
from podline.ledger.slowness import Loss
from podline.ledger.time_spent import LOSSES, loss_in_words
from podline.progress import Reporter, silent
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings
from podline.reporting.night_series import Series
from podline.settings import Settings
from podline.stages.specs import TrainSpec
from podline.store import folder
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.train import train

T = TypeVar("T")

# Of the least night; others on the machine slow all of a test down.
BUSY = os.getloadavg()[0] > 1.0
STEPS = 60

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def in_thread(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


class Planted:
    """What is planted in a night, and how many seconds of it there were."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.listens: Callable[[Any], None] | None = None

    def slowed(self, owner: Any, name: str, seconds: float, skip: int = 0) -> contextlib.AbstractContextManager[Any]:
        """Make a method take longer while the body runs, but for its first calls."""
        real, calls = getattr(owner, name), 0

        def slow(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > skip:
                self.seconds += seconds
                time.sleep(seconds)
            return real(*arguments, **named)

        patch = pytest.MonkeyPatch()
        patch.setattr(owner, name, slow)
        stack = contextlib.ExitStack()
        stack.callback(patch.undo)
        return stack


def night(store: Store, number: int, planted: Planted | None = None) -> Entry:
    """A night: a training of some seconds; it is killed where that is planted."""
    recipe = small_recipe(
        seed=number,
        model=ModelSettings(kind="resnet", width=0.5),
        batch_size=64,
        duration=Duration(steps=STEPS),
        evaluate_every=None,
        summary_steps=10,
        checkpoint_steps=10,
    )
    spec = TrainSpec(root=store.uri, recipe=recipe, fingerprint=FINGERPRINT, strategy="cpu", preflight=False)
    with recorded(store, "t", "commands", silent()) as notes:
        notes.planned(recipe, Settings(), "cpu")
        notes.asked(spec)
        if planted and planted.listens:
            with pytest.raises(Killed):
                in_thread(lambda: train(spec, Reporter("train", planted.listens)))
            notes.retried("train", ChildKilledError("killed by SIGKILL"), 0.0)
        result = in_thread(lambda: train(spec, silent()).model_copy(update={"spans": stopwatch.spans()}))
        notes.answered(spec, result, result.seconds)
    return notes.entry


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Leave this process, with threads that come to be, one of its cores."""
    before = os.sched_getaffinity(0)
    every(lambda task: os.sched_setaffinity(task, {min(before)}))
    try:
        yield
    finally:
        every(lambda task: os.sched_setaffinity(task, before))


def every(do: Callable[[int], None]) -> None:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            do(int(task.name))


@contextlib.contextmanager
def busy_neighbour() -> Iterator[None]:
    """Processes that want as many cores as there are, twice."""
    command = [sys.executable, "-c", "while True: pass"]
    neighbours = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for each in neighbours:
            each.send_signal(signal.SIGKILL)
            each.wait()


@contextlib.contextmanager
def killed(planted: Planted, step: int) -> Iterator[None]:
    """Let a training die some seconds after it came to a step that its next checkpoint has not."""

    def listens(event: Any) -> None:
        if event["event"] == "progress" and event["done"] >= step:
            planted.seconds += 4.0
            time.sleep(4.0)
            raise Killed

    planted.listens = listens
    yield


PLANTED: dict[str, tuple[str, Callable[[Planted], contextlib.AbstractContextManager[Any]]]] = {
    "kill": ("lost", lambda planted: killed(planted, 25)),
    "late kill": ("lost", lambda planted: killed(planted, 45)),
    "slow store": ("store", lambda planted: planted.slowed(folder, "_sync", 0.1)),
    "slower store": ("store", lambda planted: planted.slowed(folder, "_sync", 0.2)),
    # The first batches are read ahead while the step is traced.
    "slow input": ("input", lambda planted: planted.slowed(SplitReader, "gather", 0.2, skip=12)),
    "slower input": ("input", lambda planted: planted.slowed(SplitReader, "gather", 0.3, skip=12)),
    "one core": ("1 core instead of 2", lambda _: one_core()),
    "one core again": ("1 core instead of 2", lambda _: one_core()),
    "neighbour": ("other processes use", lambda _: busy_neighbour()),
    "neighbour again": ("other processes use", lambda _: busy_neighbour()),
}


@pytest.mark.skipif(BUSY, reason="needs a machine that does nothing else")
def test_ten_nights_with_planted_losses_are_named_and_ten_undisturbed_ones_are_not(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("podline.training.loop._NEWS_SECONDS", -1.0)
    publish_dataset(tmp_path, train=256, test=40)
    store = open_store(tmp_path)
    usual = [night(store, number) for number in range(11)][1:]  # the first one imports what is not yet there
    series = Series(usual[0], others=False)
    for entry in usual:
        assert series.slow(entry) == ""
        series.add(entry)
    for number, (name, (expected, plant)) in enumerate(PLANTED.items(), start=len(usual) + 1):
        planted = Planted()
        with plant(planted):
            entry = night(store, number, planted)
        said = series.slow(entry)
        if expected not in LOSSES:
            assert expected in said, name
            continue
        before = sorted(each.spent.get(expected, 0.0) for each in usual)[len(usual) // 2]
        assert entry.spent[expected] - before == pytest.approx(planted.seconds, rel=0.1), name
        assert said.startswith(loss_in_words(Loss(expected, entry.spent[expected], before, 10)).split(":")[0]), name
