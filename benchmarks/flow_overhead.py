"""Measures what running under Prefect costs, beside the same stages as commands: ``podline benchmark flow``."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from podline.data.sources.sample import write_sample
from podline.deployments import project_file
from podline.deployments.up import READY, Place
from podline.documents.completion import completion_name
from podline.errors import PodlineError
from podline.settings import Settings
from podline.stages.table import CHAIN, EVALUATE, PROMOTE
from podline.store.opening import open_store

_RECIPE = "sample"
_DEPLOYMENT = "training/cifar-manual"
_POLL = 0.1
_PATIENCE = 300.0


def overhead(work: str, steps: int, repetitions: int) -> dict[str, list[float]]:
    """Seconds of the stages under Prefect and as commands; and from Retry to the first line of a stage that is done.

    Server and worker are up already, as they are for whoever clicks on Run. A run's time is from the moment at which it
    is asked for to the moment at which it is Completed.

    Args:
        work: a folder; every repetition has a store of its own in it.
        steps: of the training.
        repetitions: of each side; who goes first alternates.

    Raises:
        PodlineError: a run or a command failed.
    """
    source = str(write_sample(Path(work, "raw")))
    found: dict[str, list[float]] = {"flow": [], "commands": [], "retry": []}
    with _up(f"{work}/standing") as server:
        for repetition in range(repetitions):
            for side in ("flow", "commands") if repetition % 2 == 0 else ("commands", "flow"):
                root, started = f"{work}/{side}-{repetition}", time.perf_counter()
                if side == "commands":
                    _run_commands(source, root, steps)
                    found[side].append(time.perf_counter() - started)
                    continue
                run = server.start(source, root, steps)
                server.wait(run)
                found[side].append(time.perf_counter() - started)
                _forget_evaluation(root)
                found["retry"].append(server.retry(run))
    return found


@contextlib.contextmanager
def _up(root: str) -> Iterator[_Server]:
    """Yield the server of a `podline up`, which ends with the body."""
    port = _free_port()
    command = [sys.executable, "-P", "-m", "podline.cli", "up", "--root", root, "--port", str(port)]
    command += ["--project", str(project_file.OURS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 (our own)
        assert process.stdout is not None  # noqa: S101 (it is a pipe)
        try:
            if not any(line.startswith(READY) for line in process.stdout):
                raise PodlineError("`podline up` ended before it was ready; its error is above")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield _Server(f"http://127.0.0.1:{port}/api", Place(Settings(root=root)).secret)
        finally:
            process.terminate()
            process.wait()


class _Server:
    """A Prefect server, by what a browser asks it."""

    def __init__(self, url: str, secret: str) -> None:
        self._client = httpx.Client(base_url=url, auth=httpx.BasicAuth(*secret.split(":", 1)), timeout=60)

    def start(self, source: str, root: str, steps: int) -> str:
        """Start a run of the deployment; return its id."""
        deployment = self._answer("GET", f"deployments/name/{_DEPLOYMENT}")["id"]
        parameters = {"recipe": _RECIPE, "source": source, "training": {"steps": steps}, "machine": {"root": root}}
        given = {"parameters": {"parameters": parameters}}
        return self._ask(f"deployments/{deployment}/create_flow_run", given)["id"]

    def wait(self, run: str) -> None:
        """Wait until a run is done."""
        while (state := self._state(run))["type"] != "COMPLETED":
            if state["type"] in ("FAILED", "CRASHED", "CANCELLED"):
                raise PodlineError(f"the run ended as {state['name']}: {state['message']}")
            time.sleep(_POLL)

    def retry(self, run: str) -> float:
        """Seconds from what the button Retry does to the first line in the log of the evaluation."""
        clicked = time.time()
        state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry"}
        # By force: this run is Completed, and a person would retry one that is not.
        answer = self._ask(f"flow_runs/{run}/set_state", {"state": state, "force": True})
        if answer["status"] != "ACCEPT":
            raise PodlineError(f"the run cannot be tried again: {answer}")
        self.wait(run)
        tasks = self._ask("task_runs/filter", {"task_runs": {"name": {"any_": [EVALUATE.name]}}})
        newest = max((task for task in tasks if task["flow_run_id"] == run), key=lambda task: task["created"])
        lines = self._ask("logs/filter", {"logs": {"task_run_id": {"any_": [newest["id"]]}}})
        return min(datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines) - clicked

    def _state(self, run: str) -> dict[str, Any]:
        return self._answer("GET", f"flow_runs/{run}")["state"]

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        return self._answer("POST", path, body)

    def _answer(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the server's answer; ask a busy server again (its SQLite is locked)."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            answer = self._client.request(method, f"/{path}", json=body)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                if answer.is_error:
                    raise PodlineError(f"{method} {path}: {answer.status_code} {answer.text}")
                return answer.json()
            time.sleep(_POLL)


def _run_commands(source: str, root: str, steps: int) -> None:
    options = {"convert": ["--source", source], "train": ["--steps", str(steps)]}
    for stage in (stage.name for stage in CHAIN if stage is not PROMOTE):
        ours = [sys.executable, "-P", "-m", "podline.cli"]
        command = [*ours, stage, _RECIPE, "--root", root, *options.get(stage, ())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (our own)
        if done.returncode:
            raise PodlineError(f"podline {stage} ended with {done.returncode}:\n{done.stderr}")


def _forget_evaluation(root: str) -> None:
    """Delete the evaluation's record, so that it has to be done."""
    store = open_store(root)
    (run,) = {name.split("/")[1] for name in store.list("runs")}
    store.delete(completion_name(f"runs/{run}", EVALUATE.name))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]
