"""Nights with planted losses have them in their class, and name them; undisturbed ones name none."""

from __future__ import annotations

import contextlib
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
from podline.ledger.slowness import losses
from podline.ledger.time_spent import LOSSES
from podline.progress import Reporter, silent
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings
from podline.settings import Settings
from podline.stages.specs import TrainSpec
from podline.store import folder
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.train import train

T = TypeVar("T")

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
    "slow store": ("store", lambda planted: planted.slowed(folder, "_sync", 0.2)),
    "slower store": ("store", lambda planted: planted.slowed(folder, "_sync", 0.3)),
    # The first batches are read ahead while the step is traced.
    "slow input": ("input", lambda planted: planted.slowed(SplitReader, "gather", 0.3, skip=12)),
    "slower input": ("input", lambda planted: planted.slowed(SplitReader, "gather", 0.5, skip=12)),
}


def named(entry: Entry, usual: list[Entry]) -> list[str]:
    return [loss.kind for loss in losses(entry.spent, [each.spent for each in usual], LOSSES)]


def test_nights_with_planted_losses_have_them_in_their_class_and_undisturbed_ones_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("podline.training.loop._NEWS_SECONDS", -1.0)
    publish_dataset(tmp_path, train=256, test=40)
    store = open_store(tmp_path)
    night(store, 0)  # imports what is not yet there
    usual = [night(store, number) for number in range(1, 7)]
    for place, entry in enumerate(usual):
        assert named(entry, usual[:place]) == []
    for number, (name, (expected, plant)) in enumerate(PLANTED.items(), start=7):
        planted = Planted()
        with plant(planted):
            entry = night(store, number, planted)
        assert named(entry, usual) == [expected], name
        assert entry.spent.get("unattributed", 0.0) < 0.02 * entry.seconds
        # The next batch is read while a step is taken; of a kill, the steps since the checkpoint are lost as well.
        hidden = entry.spent["steps"] if expected == "input" else 0.0
        got = entry.spent[expected] - usual[-1].spent.get(expected, 0.0)
        assert got == pytest.approx(planted.seconds - hidden, rel=0.2 if expected == "lost" else 0.1), name
