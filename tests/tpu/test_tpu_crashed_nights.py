"""Runs of a real worker: one that loses its process or machine begins again once, and one that is cancelled ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.states import Cancelling
from prefect_servers import PrefectServer, artifacts_of, prefect_server_in, worker
from small_flow_stages import STEPS, ran
from standin.cloud import NODE, Cloud
from standin.servers import serving
from waiting import wait_until

from podline.data.sources.sample import write_sample
from podline.deployments import automations
from podline.stages.supervision.processes import kill_marked, marked
from podline.tasks.server import TAG
from podline.tpu.clock import SystemClock
from podline.tpu.turn import look

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

_MARK = "_TEST_CRASHED_NIGHTS"
_ALL = ["convert", "validate", "train", "evaluate", "report"]


class Nights:
    """A server with a deployment of the flow, whose training is small, and our automations."""

    def __init__(self, server: PrefectServer, folder: Path) -> None:
        self.server, self.folder, self.root = server, folder, folder / "root"
        self.root.mkdir()
        self._source = write_sample(folder / "drawn", train=50, test=20)
        self._deployment = server.deploy("tests/tpu/night_flow.py:training", tags=[TAG])
        with server.client() as client:
            assert [automations.put(client, each) for each in automations.wanted([])] == ["made"] * 2

    def start(self, seed: int = 0) -> UUID:
        given = {"recipe": "sample", "source": str(self._source), "machine": {"root": str(self.root)}}
        given |= {"training": {"steps": 1, "seed": seed}}
        return self.server.schedule(self._deployment, {"parameters": given})

    def worker(self, name: str, **more: str) -> contextlib.AbstractContextManager[Any]:
        more |= {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", _MARK: str(self.root)}
        return worker(self.server, name, self.folder, "--limit", "1", **more)

    def notes(self) -> list[str]:
        """The processes that took the training's steps; each step is noted before and after it."""
        file = self.root / "at-work"
        return file.read_text().split() if file.exists() else []

    def hold(self, stage: str) -> Path:
        """Stop a stage until the file is gone; the training stops where it has saved a checkpoint and gone on."""
        file = self.root / ("hold" if stage == "train" else f"hold-{stage}")
        file.touch()
        return file

    def wait_until_held(self, stage: str) -> None:
        # The training has noted its first six steps, and goes on noting that it lives.
        taken = len(self.notes())
        held = self.root / f"held-{stage}"
        wait_until(lambda: len(self.notes()) > taken + 2 * 6 if stage == "train" else held.exists())

    def card(self, run: UUID) -> str:
        with self.server.client() as client:
            return str(artifacts_of(client, run)["sample-progress"].data)

    def completed_after_a_crash(self, run: UUID) -> bool:
        wait_until(lambda: self.server.state(run).is_completed(), 600, every=1)
        with self.server.client() as client:
            names = {state.name for state in client.read_flow_run_states(run)}
            return client.read_flow_run(run).run_count == 2 and {"Crashed", "AwaitingRetry"} <= names


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nights]:
    # A crashed run begins again sooner than usual, and later than a worker tidies up.
    monkeypatch.setattr(automations, "_PAUSE", timedelta(seconds=40))
    with prefect_server_in(tmp_path) as server:
        yield Nights(server, tmp_path)


def test_a_night_that_loses_its_process_or_all_its_machine_begins_again_once(nights: Nights) -> None:
    hold = nights.hold("train")
    with nights.worker("first"):
        night = nights.start(seed=0)
        nights.wait_until_held("train")
        [flow] = marked("PREFECT__FLOW_RUN_ID", str(night))[:1]
        os.kill(flow, signal.SIGKILL)
        wait_until(lambda: nights.server.state(night).is_crashed())
        assert "its process was ended from outside" in nights.card(night)
        hold.unlink()
        assert nights.completed_after_a_crash(night)
        assert ran(str(nights.root)) == ["convert", "validate", "train", "train", "evaluate", "report"]

        hold = nights.hold("evaluate")
        night = nights.start(seed=1)
        nights.wait_until_held("evaluate")
        nights.server.kill()
    kill_marked("PREFECT__FLOW_RUN_ID", str(night))
    hold.unlink()
    nights.server.start()
    nights.server.wait()
    with nights.worker("second"):
        assert nights.completed_after_a_crash(night)
    assert ran(str(nights.root))[6:] == ["train", "evaluate", "evaluate", "report"]
    for weights in nights.root.glob("runs/*/weights"):
        assert json.loads(weights.read_text()) == list(range(STEPS))


def test_a_run_that_is_cancelled_at_each_stage_leaves_nothing_behind(nights: Nights, tmp_path: Path) -> None:
    def is_used() -> bool:
        return bool(look(tmp_path / f"podline-tpu-{NODE}", 0, SystemClock()).holder)

    settings = tmp_path / "podline.toml"
    with serving(Cloud(SystemClock())) as address, nights.worker("one", PODLINE_SETTINGS=str(settings)) as its_worker:
        api = f'[tpu.api]\nproject = "test-project"\nzone = "us-central2-b"\nendpoint = "{address}"\ninsecure = true\n'
        limits = "[tpu.limits]\npoll = 0.5\ncool_down = 0.5\n"
        settings.write_text(f'[tpu]\nnode = "{NODE}"\nfolder = "{tmp_path}"\n{api}{limits}')
        for stage in _ALL:
            hold = nights.hold(stage)
            run = nights.start()
            nights.wait_until_held(stage)
            assert is_used() == (stage in ("train", "evaluate"))
            with nights.server.client() as client:
                client.set_flow_run_state(run, Cancelling())
            wait_until(lambda run=run: nights.server.state(run).is_final())
            assert nights.server.state(run).name == "Cancelled"
            wait_until(lambda: marked(_MARK, str(nights.root)) == [its_worker.pid])
            assert not is_used()
            hold.unlink()
        last = nights.start()
        wait_until(lambda: nights.server.state(last).is_final())
        assert nights.server.state(last).is_completed()
    # Each stage once more than it was cancelled, and none that was done.
    assert ran(str(nights.root)) == [stage for stage in _ALL for _ in range(2)]
    # Seven steps were saved when the training was cancelled: six, and the one after it was asked to end.
    notes = nights.notes()
    assert notes.count(notes[-1]) == 2 * (STEPS - 7)
