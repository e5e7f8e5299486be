"""A run that is cancelled, at each stage: nothing of it is left, the TPU is free, the next run goes on from there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from prefect.states import Cancelling
from prefect_servers import PrefectServer, prefect_server_in, wait_until, worker
from small_flow_stages import STEPS, ran
from standin.cloud import NODE, Cloud
from standin.servers import serving

from podline.data.sources.sample import write_sample
from podline.supervision import processes
from podline.tpu.clock import SystemClock
from podline.tpu.turn import look

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

_MARK = "_TEST_CANCELLED"
_ALL = ["convert", "validate", "train", "evaluate", "report"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrefectServer]:
    with prefect_server_in(tmp_path) as made:
        yield made


def cancel(server: PrefectServer, run: UUID) -> None:
    """What the button Cancel does."""
    with server.client() as client:
        client.set_flow_run_state(run, Cancelling())


def notes_of_training(root: Path) -> list[str]:
    """The processes that took the training's steps; each step is noted before and after it."""
    file = root / "at-work"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def test_a_run_that_is_cancelled_at_each_stage_leaves_nothing_behind(server: PrefectServer, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    drawn = write_sample(tmp_path / "drawn", train=50, test=20)
    given = {"recipe": "sample", "source": str(drawn), "machine": {"root": str(root)}, "training": {"steps": 1}}
    deployment = server.deploy("tests/tpu/night_flow.py:training")

    def start() -> UUID:
        return server.schedule(deployment, {"parameters": given}, datetime.now(UTC))

    def is_held(stage: str) -> bool:
        # Of the training: it has noted its first six steps, and goes on noting that it lives.
        return len(notes_of_training(root)) > 2 * 6 if stage == "train" else (root / f"held-{stage}").exists()

    def is_used() -> bool:
        return bool(look(tmp_path / f"podline-tpu-{NODE}", 0, SystemClock()).holder)

    with serving(Cloud(SystemClock())) as address:
        settings = tmp_path / "podline.toml"
        api = f'[tpu.api]\nproject = "test-project"\nzone = "us-central2-b"\nendpoint = "{address}"\ninsecure = true\n'
        limits = "[tpu.limits]\npoll = 0.5\ncool_down = 0.5\n"
        settings.write_text(f'[tpu]\nnode = "{NODE}"\nfolder = "{tmp_path}"\n{api}{limits}')
        marks = {"PODLINE_SETTINGS": str(settings), _MARK: str(root)}
        with worker(server, "one", tmp_path, "--limit", "1", **marks) as its_worker:
            for stage in _ALL:
                # The training stops where it has saved a checkpoint and gone on.
                hold = root / ("hold" if stage == "train" else f"hold-{stage}")
                hold.touch()
                run = start()
                wait_until(lambda stage=stage: is_held(stage))
                assert is_used() == (stage in ("train", "evaluate"))
                cancel(server, run)
                wait_until(lambda run=run: server.state(run).is_final())
                assert server.state(run).name == "Cancelled"
                wait_until(lambda: processes.marked(_MARK, str(root)) == [its_worker.pid])
                assert not is_used()
                hold.unlink()
            last = start()
            wait_until(lambda: server.state(last).is_final())
            assert server.state(last).is_completed()
    # Each stage once more than it was cancelled, and none that was done.
    assert ran(str(root)) == [stage for stage in _ALL for _ in range(2)]
    # Seven steps were saved when the training was cancelled: six, and the one after it was asked to end.
    notes = notes_of_training(root)
    assert notes.count(notes[-1]) == 2 * (STEPS - 7)
