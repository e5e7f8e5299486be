"""A stand-in for Google Cloud Dataflow: its REST API (v1b3) for jobs, which runs the staged pipelines on Prism.

It knows create, get, update (to cancel) and messages. Workers are a pool on this machine, whatever image a job asks
for: the image is not looked at.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.portable_runner import PipelineResult, PortableRunner
from apache_beam.transforms.environments import ExternalEnvironment
from google.cloud import storage
from http_answers import Request, answering

_STATES = {"DONE": "JOB_STATE_DONE", "FAILED": "JOB_STATE_FAILED", "CANCELLED": "JOB_STATE_CANCELLED"}


class Dataflow:
    """The service's jobs, by id; if it is ``late``, a job begins only when its creation is requested again."""

    def __init__(self, prism: str, pool: str) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.late, self._asked_again = False, threading.Event()
        self._prism, self._pool = prism, pool
        self._running: dict[str, PipelineResult] = {}
        self._failures: dict[str, str] = {}

    def create(self, job: dict[str, Any]) -> dict[str, Any]:
        """Start a job; answer with the running one of the same name if there is one, as the service does."""
        for other in self.jobs.values():
            if (other["name"], other["currentState"]) == (job["name"], "JOB_STATE_RUNNING"):
                self._asked_again.set()
                return other
        number = f"2026-{len(self.jobs) + 1}"
        self.jobs[number] = job | {"id": number, "currentState": "JOB_STATE_RUNNING"}
        (staged,) = set(re.findall(r"gs://[^\"]*/pipeline\.pb", json.dumps(job)))
        threading.Thread(target=self._watch, args=(number, staged), daemon=True).start()
        return self.jobs[number]

    def cancel(self, number: str) -> dict[str, Any]:
        self.jobs[number]["currentState"] = "JOB_STATE_CANCELLED"
        with contextlib.suppress(Exception):
            self._running[number].cancel()
        return self.jobs[number]

    def messages(self, number: str) -> dict[str, Any]:
        text = self._failures.get(number)
        error = {"id": "1", "time": "2026-11-24T00:00:00Z", "messageImportance": "JOB_MESSAGE_ERROR"}
        return {"jobMessages": [error | {"messageText": text}] if text else []}

    def _run(self, staged: str) -> PipelineResult:
        bucket, _, name = staged.removeprefix("gs://").partition("/")
        client = storage.Client(project="none")
        pipeline = beam_runner_api_pb2.Pipeline.FromString(client.bucket(bucket).blob(name).download_as_bytes())
        client.close()
        for environment in pipeline.components.environments.values():
            environment.CopyFrom(ExternalEnvironment(self._pool).to_runner_api(None))  # type: ignore[arg-type]
        options = PipelineOptions([f"--job_endpoint={self._prism}", "--environment_type=EXTERNAL"])
        return PortableRunner().run_portable_pipeline(pipeline, options)

    def _watch(self, number: str, staged: str) -> None:
        if self.late:
            self._asked_again.wait(240)
        if self.jobs[number]["currentState"] != "JOB_STATE_RUNNING":
            return
        try:
            self._running[number] = self._run(staged)
            state = _STATES[self._running[number].wait_until_finish()]
        except Exception as error:
            state, self._failures[number] = "JOB_STATE_FAILED", f"Traceback (most recent call last):\n{error}"
        if self.jobs[number]["currentState"] == "JOB_STATE_RUNNING":
            self.jobs[number]["currentState"] = state


@contextlib.contextmanager
def dataflow(prism: str, pool: str) -> Iterator[tuple[str, Dataflow]]:
    """Yield the address and the state of a service that runs jobs on Prism and a pool of workers."""
    service = Dataflow(prism, pool)

    def answer(request: Request) -> tuple[int, bytes]:
        path = re.fullmatch(r"/v1b3/projects/[^/]+/locations/[^/]+/jobs(?:/([^/]+)(/messages)?)?", request.place)
        assert path, request.path
        number, of_messages = path.groups()
        if request.method == "POST":
            found = service.create(json.loads(request.body))
        elif request.method == "PUT":
            assert json.loads(request.body)["requestedState"] in ("JOB_STATE_CANCELLED", 5)
            found = service.cancel(number)
        else:
            found = service.messages(number) if of_messages else service.jobs[number]
        return 200, json.dumps(found).encode()

    with answering(answer, Content_Type="application/json") as url:
        yield url, service
