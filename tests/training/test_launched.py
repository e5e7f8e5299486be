"""One training under Slurm on two hosts, against the same in one process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import slurm_cluster
from dying_runs import lively_recipe, losses, training_processes, unbroken
from free_ports import free_ports
from small_dataset import FINGERPRINT, publish_dataset

from podline.documents.metrics_log import read_events
from podline.stages.specs import TrainSpec

SBATCH = Path(__file__).resolve().parents[2] / "deployments" / "slurm" / "train.sbatch"
STEPS = 200
# As for replicas in one process; see test_strategies.
TOLERANCE = 1e-5
_SECONDS = 300.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def spec_of(root: Path, strategy: str = "workers") -> TrainSpec:
    publish_dataset(root)
    recipe = lively_recipe(
        model={"kind": "linear", "dropout": 0.2, "l2": 1e-2, "l2_layers": ("classifier",)},
        ema_decay=0.0,
        duration={"steps": STEPS},
        schedule={"kind": "cosine", "learning_rate": 0.01},
        checkpoint_steps=20,
        summary_steps=1,  # many stops: a lost host is lost between two of them
    )
    return TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT, strategy=strategy)


class Job(NamedTuple):
    """A job of Slurm."""

    number: str
    environment: dict[str, str]
    log: Path

    def scontrol(self, *arguments: str) -> str:
        command = ["scontrol", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    @property
    def state(self) -> dict[str, str]:
        words = self.scontrol("show", "job", self.number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def await_state(self, wanted: str) -> dict[str, str]:
        deadline = time.monotonic() + _SECONDS
        while (state := self.state)["JobState"] != wanted:
            assert state["JobState"] in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED"), self.log.read_text()
            assert time.monotonic() < deadline, f"{state}\n{self.log.read_text()}"
            time.sleep(0.2)
        return state


@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=f"needs {', '.join(slurm_cluster.missing())}")
def test_slurm_trains_as_one_process_would_and_goes_on_with_the_nodes_that_are_left(tmp_path: Path):
    _, _, folder = unbroken(spec_of(tmp_path / "alone", "cpu"))
    alone = losses(folder)
    assert len(alone) == STEPS
    (tmp_path / "slurm").mkdir()
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(SBATCH.parents[2])}
    with slurm_cluster.slurm(tmp_path / "slurm", free_ports(3)) as environment:

        def submitted(spec: TrainSpec) -> Job:
            file, log = Path(spec.root) / "spec.json", Path(spec.root) / "log"
            file.write_text(spec.model_dump_json())
            command = ["sbatch", "--parsable", "--nodes=1-2", f"--output={log}", str(SBATCH), "--spec", str(file)]
            sbatch = subprocess.run(command, env=environment | path, capture_output=True, text=True, check=True)
            return Job(sbatch.stdout.strip(), environment, log)

        together = spec_of(tmp_path / "together")
        assert submitted(together).await_state("COMPLETED")["NumNodes"] == "2"
        np.testing.assert_allclose(losses(Path(together.root) / together.folder), alone, rtol=TOLERANCE)

        broken = spec_of(tmp_path / "broken")
        job = submitted(broken)
        deadline = time.monotonic() + _SECONDS
        while not (Path(broken.root) / broken.folder / "checkpoints" / "step-00000040.json").exists():
            assert time.monotonic() < deadline, job.log.read_text()
            time.sleep(0.01)
        job.scontrol("update", f"NodeName={slurm_cluster.NODES[1]}", "State=DRAIN", "Reason=lost")
        [rank] = training_processes(Path(broken.root), b"SLURM_PROCID=1\0")
        os.kill(rank, signal.SIGKILL)
        lost = time.monotonic()
        job.await_state("PENDING")
        assert time.monotonic() - lost < 60
        job.scontrol("update", f"JobId={job.number}", "StartTime=now")  # Slurm waits for two minutes
        state = job.await_state("COMPLETED")
    assert (state["NumNodes"], state["Restarts"]) == ("1", "1")
    folder = Path(broken.root) / broken.folder
    events = read_events(folder / "events.jsonl")
    assert [event.event for event in events] == ["started", "host_lost", "restored", "finished"]
    assert events[0].message.endswith("2 × cpu of 2 hosts")
    assert re.match(r"worker 1 \(127.0.0.2:\d+\) ended first: train: killed by SIGKILL", events[1].message)
    assert events[2].message.endswith("the newest whole one, cpu")
    assert events[2].step >= 40
    np.testing.assert_allclose(losses(folder), alone, rtol=TOLERANCE)
