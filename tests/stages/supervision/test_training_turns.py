"""One training at a time runs on a machine, whatever started it; the others say whom they wait for."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from small_stages import ActResult
from waiting import wait_until

from podline.base.errors import ChildKilledError, SettingsError
from podline.base.progress import Event
from podline.recipes.settings import Recipe
from podline.settings.machine import Settings
from podline.stages.specs import TrainSpec
from podline.stages.supervision.supervisor import run_stage
from podline.stages.table import STAGES, Stage


@pytest.fixture(autouse=True)
def _small_training(tmp_path: Path, in_children: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODLINE_TRAIN_LOCK", str(tmp_path / "train.lock"))
    train = Stage("train", TrainSpec, ActResult, "small_stages:train", "small_stages:find_nothing")
    monkeypatch.setitem(STAGES, "train", train)


class Training:
    """A training in a store of its own, in a thread."""

    def __init__(self, root: Path) -> None:
        self.root, self.events = root, list[Event]()
        self.error: BaseException | None = None
        root.mkdir()
        recipe = Recipe(name=root.name, dataset="sample")
        self.spec = TrainSpec(root=str(root), recipe=recipe, fingerprint="f")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            run_stage(self.spec, self.events.append)
        except ChildKilledError as error:
            self.error = error

    def process(self) -> int:
        wait_until((self.root / "working").exists, every=0.02)
        return int((self.root / "working").read_text())

    def waiting(self) -> str:
        wait_until(lambda: any(event["event"] == "waiting" for event in self.events), every=0.02)
        return next(event["message"] for event in self.events if event["event"] == "waiting")

    def finish(self) -> None:
        (self.root / "enough").touch()
        self._thread.join(240)


def test_a_second_training_waits_says_for_whom_and_begins_when_the_first_is_killed(tmp_path: Path) -> None:
    first = Training(tmp_path / "first")
    process = first.process()
    second = Training(tmp_path / "second")
    said = second.waiting()
    assert said.startswith("waits for its turn: this machine runs one training at a time (PODLINE_TRAIN_LOCK=")
    assert f"(process {process} on " in said
    assert any(event["event"] == "log" and event["message"] == said for event in second.events)
    assert not (second.root / "working").exists()
    os.kill(process, signal.SIGKILL)
    second.process()
    first.finish()
    second.finish()
    assert isinstance(first.error, ChildKilledError)
    assert second.events[-1]["event"] == "result"


def test_a_file_that_cannot_be_a_lock_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "train.lock").symlink_to(tmp_path / "elsewhere")
    spec = TrainSpec(root=str(tmp_path / "root"), recipe=Recipe(name="a", dataset="sample"), fingerprint="f")
    told = r"train\.lock, the lock file of trainings, cannot be used .*set train_lock"
    with pytest.raises(SettingsError, match=told):
        run_stage(spec, lambda _event: None, Settings())
