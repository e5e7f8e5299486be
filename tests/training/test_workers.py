"""Processes that train together take the steps of one alone, and end and go on together, also under Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import slurm_cluster
from dying_runs import lively_recipe, losses, training_processes, unbroken
from free_ports import free_ports
from small_dataset import FINGERPRINT, publish_dataset

from podline.base.errors import PreemptedError, WorkerLostError
from podline.base.progress import silent
from podline.documents.metrics_log import StepsLine, read_events
from podline.settings.cluster import Cluster
from podline.stages.specs import TrainResult, TrainSpec
from podline.store.opening import open_store
from podline.training.train import train
from podline.training.workers import gathered
from tests.support.metrics import read_metrics

RUN_STAGE = """
import json
import sys
from podline.base.errors import PodlineError
from podline.stages.specs import TrainSpec
from podline.stages.supervision.supervisor import run_stage

try:
    run_stage(TrainSpec.model_validate_json(sys.argv[1]), lambda event: print(json.dumps(event), flush=True))
except PodlineError as error:
    sys.exit(error.exit_code)
"""
# As for replicas in one process; see test_strategies.
TOLERANCE = 1e-5
STEPS = 120

Event = dict[str, Any]


def spec_of(root: Path | str) -> TrainSpec:
    publish_dataset(root)
    recipe = lively_recipe(
        model={"kind": "linear", "dropout": 0.2, "l2": 1e-2, "l2_layers": ("classifier",)},
        evaluation_batch_size=15,
        duration={"steps": STEPS},
        optimizer={"clip_norm": 1.0},
        schedule={"kind": "cosine", "learning_rate": 0.01},
        evaluate_every={"steps": 50},
        checkpoint_steps=20,
        summary_steps=1,  # many stops: somebody who is asked to end, or is lost, is so between two of them
    )
    return TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT, strategy="workers")


@contextlib.contextmanager
def workers(spec: TrainSpec) -> Iterator[list[subprocess.Popen[str]]]:
    """Both workers, started with the same command."""
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    with contextlib.ExitStack() as stack:
        processes = []
        for index in range(2):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            process = subprocess.Popen(
                [sys.executable, "-c", RUN_STAGE, spec.model_dump_json()],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "TF_CONFIG": json.dumps(config)},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        yield processes


def heard_until(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "progress" and event["done"] >= step:
            return
    raise AssertionError(f"ended with {process.wait()} before step {step}")


def last_words(processes: list[subprocess.Popen[str]]) -> list[Event]:
    """The last event of each."""
    return [json.loads(process.communicate(timeout=240)[0].splitlines()[-1]) for process in processes]


def child_of(process: subprocess.Popen[str]) -> int:
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_workers_train_as_one_process_would_and_go_on_after_sigterm_and_a_loss(tmp_path: Path, gcs_root: str):
    spec = spec_of(f"{gcs_root}together")  # of which both read; what follows is in folders
    with workers(spec) as both:
        ended = last_words(both)
    results = [TrainResult.model_validate(event["result"]) for event in ended]
    assert results[0].weights_sha256 == results[1].weights_sha256
    assert results[0].devices == "2 × cpu"
    store = open_store(spec.root)
    weights = store.read_bytes(f"{spec.folder}/model/weights.npz")
    assert not list((store.scratch / "tmp").iterdir()), "the second worker's copy is gone"

    # One process alone takes the same steps.
    alone = spec_of(tmp_path / "alone").model_copy(update={"strategy": "cpu"})
    train(alone, silent())
    lines, expected = (
        read_metrics(open_store(root).local(f"{spec.folder}/metrics.jsonl")) for root in (spec.root, alone.root)
    )
    assert [line.step for line in lines] == [line.step for line in expected]
    for ours, theirs in zip(lines, expected, strict=True):
        if isinstance(ours, StepsLine) and isinstance(theirs, StepsLine):
            np.testing.assert_allclose(ours.losses, theirs.losses, rtol=TOLERANCE)
            assert ours.accuracy == theirs.accuracy

    # SIGTERM at one is the end of both, after a checkpoint; a lost one is transient; all go on from what is saved.
    broken = spec_of(tmp_path / "broken")
    with workers(broken) as both:
        heard_until(both[1], 5)
        os.kill(child_of(both[1]), signal.SIGTERM)
        assert [event["error"]["type"] for event in last_words(both)] == [PreemptedError.__name__] * 2
    with workers(broken) as both:
        heard_until(both[0], 60)
        checkpoint = tmp_path / "broken" / spec.folder / "checkpoints" / "step-00000060.json"
        while not checkpoint.exists():  # it is told of a step before its checkpoint is whole
            time.sleep(0.01)
        os.kill(child_of(both[1]), signal.SIGKILL)
        errors = [event["error"] for event in last_words(both)]
        assert [error["type"] for error in errors] == [WorkerLostError.__name__, "ChildKilledError"]
        assert re.match(r"worker 1 \(localhost:\d+\) ended first: train: killed by SIGKILL", errors[0]["message"])
        assert both[0].returncode == WorkerLostError.exit_code
    with workers(broken) as both:
        result = TrainResult.model_validate(last_words(both)[0]["result"])
    assert len(result.resumed_from) == 2
    assert result.resumed_from[0] < 60 <= result.resumed_from[1]
    assert (tmp_path / "broken" / spec.folder / "model" / "weights.npz").read_bytes() == weights


def cluster(*ports: int) -> Cluster:
    addresses = tuple(f"localhost:{port}" for port in ports)
    return Cluster(addresses=addresses, place=0)


def test_what_is_made_is_returned_and_what_fails_is_raised():
    assert gathered(lambda: "made", cluster(1)) == "made"
    with pytest.raises(ZeroDivisionError):
        gathered(lambda: 1 / 0, cluster(1))


def test_those_that_do_not_come_are_named():
    ended = threading.Event()
    with contextlib.closing(socket.create_server(("localhost", 0))) as here:
        there = here.getsockname()[1]
        with socket.socket() as nobody:
            nobody.bind(("localhost", 0))
            silent = nobody.getsockname()[1]
            with pytest.raises(WorkerLostError, match="fewer workers than the 3 expected") as caught:
                gathered(ended.wait, cluster(1, there, silent), seconds=0.3)
        ended.set()
    assert f"worker 2 (localhost:{silent}) does not answer" in str(caught.value)
    assert f"localhost:{there}" not in str(caught.value)


SBATCH = Path(__file__).resolve().parents[2] / "deployments" / "slurm" / "train.sbatch"


SLURM_STEPS = 200


_SECONDS = 300.0


def slurm_spec_of(root: Path, strategy: str = "workers") -> TrainSpec:
    spec = spec_of(root)
    recipe = spec.recipe.changed(duration={"steps": SLURM_STEPS}, evaluate_every=None, ema_decay=0.0)
    return spec.changed(recipe=recipe, strategy=strategy)


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


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=f"needs {', '.join(slurm_cluster.missing())}")
def test_slurm_trains_as_one_process_would_and_goes_on_with_the_nodes_that_are_left(tmp_path: Path):
    _, _, folder = unbroken(slurm_spec_of(tmp_path / "alone", "cpu"))
    alone = losses(folder)
    assert len(alone) == SLURM_STEPS
    (tmp_path / "slurm").mkdir()
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(SBATCH.parents[2])}
    with slurm_cluster.slurm(tmp_path / "slurm", free_ports(3)) as environment:

        def submitted(spec: TrainSpec) -> Job:
            file, log = Path(spec.root) / "spec.json", Path(spec.root) / "log"
            file.write_text(spec.model_dump_json())
            command = ["sbatch", "--parsable", "--nodes=1-2", f"--output={log}", str(SBATCH), "--spec", str(file)]
            sbatch = subprocess.run(command, env=environment | path, capture_output=True, text=True, check=True)
            return Job(sbatch.stdout.strip(), environment, log)

        together = slurm_spec_of(tmp_path / "together")
        assert submitted(together).await_state("COMPLETED")["NumNodes"] == "2"
        np.testing.assert_allclose(losses(Path(together.root) / together.folder), alone, rtol=TOLERANCE)

        broken = slurm_spec_of(tmp_path / "broken")
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
