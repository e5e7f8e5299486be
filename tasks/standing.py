"""A Prefect server and a worker on this machine that stay when the command that started them has ended.

They are found again by a mark in their environment, which all that they start inherits: whatever is to be stopped is
told from what others started. Nothing here imports Prefect: this process only starts others.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from podline import processes, settings
from podline.errors import PodlineError, SettingsError, from_json
from podline.frozen import Frozen
from podline.settings import Settings
from podline.storage import explained, open_store

MARK = "_PODLINE_STANDING"
POOL = "cpu"
_POLL = 0.2
# A worker that is told to end waits for its runs, and these for a checkpoint.
_LEAVE_SECONDS = 60.0
_STOP_SECONDS = 15.0


class Standing(Frozen):
    """What was started.

    Attributes:
        host: the server listens at …
        port: … and there.
        server: its process.
        worker: likewise, or None before it was started.
    """

    host: str
    port: int
    server: int
    worker: int | None = None

    @property
    def api_url(self) -> str:
        """Where Prefect's clients find it."""
        return f"http://{self.host}:{self.port}/api"

    @property
    def ui_url(self) -> str:
        """Where a person finds it."""
        return f"http://{self.host}:{self.port}"


class Place:
    """Where under a root the server and the worker keep what is theirs.

    Attributes:
        home: Prefect's.
        logs: of both.
    """

    def __init__(self, machine: Settings) -> None:
        store = open_store(machine.root)
        self.root, self._timeout = store.uri, machine.server_timeout
        self._folder = store.scratch / "standing"
        self.home, self.logs = self._folder / "prefect", self._folder / "logs"
        self._note = self._folder / "standing.json"

    def up(self, host: str, port: int, project: Path, tell: Callable[[str], None]) -> Standing:
        """Starts what does not run yet, and deploys.

        Args:
            host: the address to listen at.
            port: likewise.
            project: the folder with ``prefect.yaml``.
            tell: gets a line for each thing that was done.

        Raises:
            SettingsError: the port is taken, or ``prefect.yaml`` is not there.
            PodlineError: a process ends at once, or does not answer in time.
        """
        with explained("write to the store", self.root):
            self.logs.mkdir(parents=True, exist_ok=True)
            self.home.mkdir(parents=True, exist_ok=True)
        standing = self._standing()
        if standing is None:
            standing = self._serve(host, port, tell)
        else:
            tell(f"server             runs already, at {standing.ui_url}")
        for change in deployed(project, self._environment(standing)):
            tell(line_of(change))
        if standing.worker is not None:
            tell(f"worker             of the pool {POOL} runs already")
            return standing
        command = ["worker", "start", "--pool", POOL, "--name", f"podline on {socket.gethostname()}"]
        worker = self._start(standing, "worker", command)
        standing = standing.model_copy(update={"worker": worker.pid})
        self._write(standing)
        self._until(worker, "worker", lambda: self._online(standing))
        tell(f"worker             of the pool {POOL} is there")
        return standing

    def down(self, tell: Callable[[str], None]) -> bool:
        """Stops all that :meth:`up` started, and what that started; a run that is in progress saves a checkpoint first.

        Returns:
            Whether there was anything.
        """
        standing = self._standing()
        if not self._ours():
            self._note.unlink(missing_ok=True)
            return False
        if standing and standing.worker:
            # Runs first, while there is a worker that notices how they end, and a server that it tells.
            runs = self._children(standing.worker)
            tell(f"runs in progress   {len(runs)}" + ("; they save their work" if runs else ""))
            self._end(lambda: self._children(standing.worker), _LEAVE_SECONDS)
            self._end(lambda: [process for process in self._ours() if process != standing.server], _STOP_SECONDS)
        self._end(self._ours, _STOP_SECONDS)
        processes.kill_marked(MARK, str(self._folder))
        self._note.unlink(missing_ok=True)
        return True

    def _standing(self) -> Standing | None:
        """What runs of what was started; None if the server does not."""
        try:
            noted = Standing.model_validate_json(self._note.read_text())
        except (OSError, ValueError):
            return None
        ours = self._ours()
        if noted.server not in ours:
            return None
        return noted if noted.worker in ours else noted.model_copy(update={"worker": None})

    def _ours(self) -> list[int]:
        return processes.marked(MARK, str(self._folder))

    def _serve(self, host: str, port: int, tell: Callable[[str], None]) -> Standing:
        try:
            with socket.create_server((host, port)):
                pass
        except OSError as error:
            raise SettingsError(
                f"--host {host} --port {port}: nobody can listen there ({error.strerror}); give another --port"
            ) from error
        standing = Standing(host=host, port=port, server=0)
        server = self._start(standing, "server", ["server", "start", "--host", host, "--port", str(port)])
        standing = standing.model_copy(update={"server": server.pid})
        self._write(standing)
        self._until(server, "server", lambda: _answers(standing))
        tell(f"server             is there, at {standing.ui_url}")
        return standing

    def _start(self, standing: Standing, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.logs / f"{name}.log").open("ab") as output:
            return subprocess.Popen(  # noqa: S603 (Prefect's command, in our own interpreter)
                [sys.executable, "-P", "-m", "prefect", *command],
                cwd=self._folder,
                env=self._environment(standing),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self, standing: Standing) -> dict[str, str]:
        return settings.standing_prefect(self.home, standing.api_url, self.root, {MARK: str(self._folder)})

    def _until(self, process: subprocess.Popen[bytes], name: str, ready: Callable[[], bool]) -> None:
        """Waits for a process to be of use; one that is not, in time, is ended with all the others."""
        deadline = time.monotonic() + self._timeout
        while not ready():
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.down(lambda _line: None)
                what = f"ended with {process.returncode}" if ended else f"does not answer within {self._timeout:g} s"
                raise PodlineError(f"Prefect's {name} {what}; its last words are in {self.logs / name}.log")
            time.sleep(_POLL)
        # It outlives this object, which is as it should be: Python is not to warn of it.
        process.returncode = 0

    def _online(self, standing: Standing) -> bool:
        workers = _asked(standing, "POST", f"/api/work_pools/{POOL}/workers/filter", b"{}")
        return any(worker["status"] == "ONLINE" for worker in workers or [])

    def _write(self, standing: Standing) -> None:
        with explained("write to the store", self.root):
            self._note.write_text(standing.model_dump_json())

    def _children(self, parent: int | None) -> list[int]:
        return [process for process in self._ours() if processes.parent(process) == parent]

    @staticmethod
    def _end(left: Callable[[], list[int]], seconds: float) -> None:
        """Asks processes to end, and waits until they have, for so long."""
        for process in left():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while left() and time.monotonic() < deadline:
            time.sleep(_POLL)


def deployed(
    project: Path,
    environment: Mapping[str, str] | None = None,
    *,
    overwrite: bool = False,
    forget: Sequence[str] = (),
) -> Iterator[dict[str, str]]:
    """What :mod:`tasks.deploying` says that it did, in a process of its own.

    Args:
        project: the folder with ``prefect.yaml``.
        environment: of that process; this one's own unless given.
        overwrite: see :class:`tasks.deploying.Request` …
        forget: … likewise.

    Raises:
        PodlineError: what it says that went wrong.
    """
    request = json.dumps({"folder": str(project.absolute()), "overwrite": overwrite, "forget": list(forget)})
    with subprocess.Popen(  # noqa: S603 (our own module, in our own interpreter)
        [sys.executable, "-m", "tasks.deploying", request],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None  # noqa: S101 (it is a pipe)
        for line in process.stdout:
            said = json.loads(line)
            if "error" in said:
                raise from_json(said["error"])
            yield said
    if process.returncode:
        raise PodlineError(f"deploying ended with {process.returncode}")


def line_of(change: Mapping[str, str]) -> str:
    """A change for a person."""
    return f"{change['kind']:<18} {change['name']}: {change['did']}"


def _answers(standing: Standing) -> bool:
    return _asked(standing, "GET", "/api/health") is True


def _asked(standing: Standing, method: str, path: str, body: bytes | None = None) -> Any:
    """What the server answers, or None if it does not, or not well."""
    connection = http.client.HTTPConnection(standing.host, standing.port, timeout=5)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", **settings.prefect_secret()})
        answer = connection.getresponse()
        return json.load(answer) if answer.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
