"""One training under the launchers of several hosts, against the same in one process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import slurm_cluster
from dying_runs import training_processes
from free_ports import free_ports
from ray_cluster import ray_cluster
from small_dataset import FINGERPRINT, publish_dataset

from podline.documents.metrics_log import StepsLine, read_events, read_metrics
from podline.errors import WorkerLostError
from podline.ledger import ledger
from podline.progress import silent
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, ModelSettings, Recipe, ScheduleSettings
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store
from podline.training.train import train

SBATCH = Path(__file__).resolve().parents[2] / "deployments" / "slurm" / "train.sbatch"
STEPS = 200
# As for replicas in one process; see test_strategies.
TOLERANCE = 1e-5
_SECONDS = 300.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def spec_of(root: Path, strategy: str = "workers") -> TrainSpec:
    publish_dataset(root)
    recipe = Recipe(
        name="t",
        dataset="sample",
        model=ModelSettings(kind="linear", dropout=0.2, l2=1e-2, l2_layers=("classifier",)),
        batch_size=8,
        evaluation_batch_size=16,
        duration=Duration(steps=STEPS),
        schedule=ScheduleSettings(kind="cosine", learning_rate=0.01),
        augmentation=AugmentationSettings(flip=True),
        checkpoint_steps=20,
        summary_steps=1,  # many stops: a lost host is lost between two of them
        deterministic=True,
    )
    return TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT, strategy=strategy)


def losses(spec: TrainSpec) -> np.ndarray:
    lines = read_metrics(Path(spec.root) / spec.folder / "metrics.jsonl")
    return np.concatenate([line.losses for line in lines if isinstance(line, StepsLine)])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The losses of one process."""
    spec = spec_of(tmp_path_factory.mktemp("alone"), "cpu")
    train(spec, silent())
    found = losses(spec)
    assert len(found) == STEPS
    return found


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


def checkpoint_of(spec: TrainSpec, log: Callable[[], str]) -> None:
    """Wait for the checkpoint of step 40."""
    checkpoint = Path(spec.root) / spec.folder / "checkpoints" / "step-00000040.json"
    deadline = time.monotonic() + _SECONDS
    while not checkpoint.exists():
        assert time.monotonic() < deadline, log()
        time.sleep(0.01)


@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=f"needs {', '.join(slurm_cluster.missing())}")
def test_slurm_trains_as_one_process_would_and_goes_on_with_the_nodes_that_are_left(tmp_path: Path, alone: np.ndarray):
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
        np.testing.assert_allclose(losses(together), alone, rtol=TOLERANCE)

        broken = spec_of(tmp_path / "broken")
        job = submitted(broken)
        checkpoint_of(broken, job.log.read_text)
        job.scontrol("update", f"NodeName={slurm_cluster.NODES[1]}", "State=DRAIN", "Reason=lost")
        [rank] = training_processes(Path(broken.root), b"SLURM_PROCID=1\0")
        os.kill(rank, signal.SIGKILL)
        lost = time.monotonic()
        job.await_state("PENDING")
        assert time.monotonic() - lost < 60
        job.scontrol("update", f"JobId={job.number}", "StartTime=now")  # Slurm waits for two minutes
        state = job.await_state("COMPLETED")
    assert (state["NumNodes"], state["Restarts"]) == ("1", "1")
    events = read_events(Path(broken.root) / broken.folder / "events.jsonl")
    assert [event.event for event in events] == ["started", "host_lost", "restored", "finished"]
    assert events[0].message.endswith("2 × cpu of 2 hosts")
    assert re.match(r"worker 1 \(127.0.0.2:\d+\) ended first: train: killed by SIGKILL", events[1].message)
    assert events[2].message.endswith("the newest whole one, cpu")
    assert events[2].step >= 40
    np.testing.assert_allclose(losses(broken), alone, rtol=TOLERANCE)


@pytest.fixture
def ray_address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Ray of two nodes on this machine."""
    monkeypatch.setenv("PODLINE_CLUSTER_PORT", str(free_ports(1)[0]))
    with ray_cluster(dashboard=False) as nodes:
        yield nodes.address


def test_ray_trains_as_one_process_would_and_tells_one_cause_when_a_host_is_lost(
    tmp_path: Path, alone: np.ndarray, ray_address: str
):
    spec = spec_of(tmp_path / "root")
    (tmp_path / "spec.json").write_text(spec.model_copy(update={"strategy": "auto"}).model_dump_json())
    command = [str(Path(sys.executable).with_name("podline")), "train", "--spec", str(tmp_path / "spec.json")]
    command += ["--launch", f"ray:{ray_address}"]
    few = subprocess.run([*command, "--hosts", "3..4"], capture_output=True, text=True, check=False, timeout=_SECONDS)
    assert few.returncode == WorkerLostError.exit_code
    assert "got 2 nodes, expected hosts=3..4" in few.stderr
    with subprocess.Popen([*command, "--hosts", "2"], stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr
        checkpoint_of(spec, first.stderr.read)
        [rank] = training_processes(Path(spec.root), b'"index": 1')
        os.kill(rank, signal.SIGKILL)
        lost = time.monotonic()
        told = first.stderr.read()
    assert time.monotonic() - lost < 60
    assert first.returncode == WorkerLostError.exit_code
    assert "killed by SIGKILL" in told
    ended = subprocess.run([*command, "--hosts", "1..4"], capture_output=True, text=True, check=False, timeout=_SECONDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    np.testing.assert_allclose(losses(spec), alone, rtol=TOLERANCE)
    assert len(ledger.names(open_store(spec.root), recipe="t", state="failed")) == 2
