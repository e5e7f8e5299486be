"""A flow's conversion on Dask whose worker, or whose own process, is killed: the flow run completes all the same."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import dask_cluster
import pytest
from engine_sources import specs
from prefect import flow
from raw_cifar import contents

from podline.beam_jobs.conversion import convert
from podline.progress import silent
from podline.stages.table import CONVERT
from podline.store.opening import open_store
from podline.supervision import processes
from podline.tasks.failures import explained
from podline.tasks.stages import StageTask

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("prefect_server")]


def driver() -> int:
    """Return the process that a flow's task started for the conversion."""
    ours = processes.children(os.getpid())
    commands = {each: Path(f"/proc/{each}/cmdline").read_bytes() for each in ours}
    return next(each for each, command in commands.items() if b"podline.supervision.child" in command)


@pytest.mark.parametrize("victim", ["worker", "driver"])
def test_a_flow_whose_conversion_loses_a_process_completes(
    tmp_path: Path, gcs: str, gcs_root: str, victim: str, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = tmp_path / "driver"
    here = specs(hidden, "images", shard_bytes=4_000)
    convert(here, silent())

    @flow
    @explained
    def converting() -> Any:
        return StageTask(CONVERT)(there).folder

    with dask_cluster.cluster(tmp_path / "cluster", hidden, more={"STORAGE_EMULATOR_HOST": gcs}) as dask:
        there = here.model_copy(update={"root": f"{gcs_root}root", "engine": dask.engine})

        def kill() -> None:
            store = open_store(there.root)
            while sum("/shards/" in name for name in store.list("datasets")) < 2:
                time.sleep(0.02)
            os.kill(driver() if victim == "driver" else dask.workers[0].pid, signal.SIGKILL)

        killing = threading.Thread(target=kill, daemon=True)
        killing.start()
        state: Any = converting(return_state=True)
        killing.join(60)
        assert state.is_completed(), state
        assert contents(there) == contents(here)
        assert open_store(there.root).list("jobs") == []
    assert ("trying again" in caplog.text) == (victim == "driver")
