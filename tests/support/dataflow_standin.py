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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.portable_runner import PipelineResult, PortableRunner
from apache_beam.transforms.environments import ExternalEnvironment
from google.cloud import storage

_STATES = {"DONE": "JOB_STATE_DONE", "FAILED": "JOB_STATE_FAILED", "CANCELLED": "JOB_STATE_CANCELLED"}


class Dataflow:
    """The service's state: jobs, each with Prism's own.

    Attributes:
        jobs: by their id, as they are answered.
        late: whether a job does not begin before it is asked for a second time.
    """

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
    """The address of a service that is gone when the body ends, and its state.

    Args:
        prism: the address of its job server.
        pool: that of the workers.
    """
    service = Dataflow(prism, pool)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_arguments: Any) -> None:
            """Nothing is logged."""

        def answer(self, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def job(self) -> str:
            found = re.fullmatch(r"/v1b3/projects/[^/]+/locations/[^/]+/jobs/([^/]+)(/messages)?", self.place)
            assert found, self.path
            return found[1]

        @property
        def place(self) -> str:
            return self.path.partition("?")[0]

        def document(self) -> dict[str, Any]:
            return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

        def do_POST(self) -> None:
            self.answer(service.create(self.document()))

        def do_PUT(self) -> None:
            assert self.document()["requestedState"] in ("JOB_STATE_CANCELLED", 5)
            self.answer(service.cancel(self.job()))

        def do_GET(self) -> None:
            if self.place.endswith("/messages"):
                self.answer(service.messages(self.job()))
            else:
                self.answer(service.jobs[self.job()])

    with ThreadingHTTPServer(("localhost", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}", service
        server.shutdown()
