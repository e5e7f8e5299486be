"""Two processes on the loopback that train together, as the supervisor runs them."""

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
from typing import Any

import numpy as np
import pytest
from dying_runs import lively_recipe
from free_ports import free_ports
from small_dataset import FINGERPRINT, publish_dataset

from podline.base.errors import PreemptedError, WorkerLostError
from podline.base.progress import silent
from podline.documents.metrics_log import StepsLine
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
