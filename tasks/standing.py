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
from urllib.parse import urlsplit

from podline import processes, settings
from podline.errors import PodlineError, SettingsError, from_json
from podline.frozen import Frozen
from podline.settings import Settings
from podline.storage import explained, open_store
from tasks.guard import LOOPBACK, url_of
from tasks.secret import header, kept, kept_or_made

MARK = "_PODLINE_STANDING"
POOL = "cpu"
_FOLDER, _HOME, _LOGS = "standing", "prefect", "logs"
# What nobody may ask without the secret.
_ANY_QUESTION = ("GET", "/api/admin/version")
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
        return f"{self.ui_url}/api"

    @property
    def ui_url(self) -> str:
        """Where a person at this machine finds it."""
        return url_of(self.host, self.port)


class Place:
    """Where under a root the server and the worker keep what is theirs.

    Attributes:
        home: Prefect's.
        logs: of both.
        secret_file: holds the secret that every call to the server brings, unless the user has set one.
    """

    def __init__(self, machine: Settings) -> None:
        self._store = open_store(machine.root)
        self.root, self._timeout = self._store.uri, machine.server_timeout
        self._folder = self._store.scratch / _FOLDER
        self.home, self.logs = self._folder / _HOME, self._folder / _LOGS
        self._note, self.secret_file = self._folder / "standing.json", self._folder / "secret"

    @property
    def secret(self) -> str:
        """What every call to the server brings; empty before there is one.

        Raises:
            StoreError: it cannot be read.
        """
        with explained("read the secret in", self.secret_file):
            return settings.server_secret() or kept(self.secret_file)

    def up(
        self,
        host: str,
        port: int,
        project: Path,
        tell: Callable[[str], None],
        *,
        overwrite: bool = False,
        forget: Sequence[str] = (),
    ) -> Standing:
        """Starts what does not run yet, and deploys.

        Args:
            host: the address to listen at.
            port: likewise.
            project: the folder with ``prefect.yaml``.
            tell: gets a line for each thing that was done.
            overwrite: see :func:`deployed` …
            forget: … likewise.

        Raises:
            SettingsError: the port is taken, ``prefect.yaml`` is not there, or the server that runs wants another
                secret, or none.
            PodlineError: a process ends at once, or does not answer in time.
        """
        for part in (_HOME, _LOGS):
            self._store.own_folder(_FOLDER, part)
        standing = self._standing()
        with explained("write the secret to", self.secret_file):
            is_new = not settings.server_secret() and kept_or_made(self.secret_file)[1]
        if standing is None:
            standing = self._serve(host, port, tell)
        else:
            self._require_same_secret(standing)
            tell(f"server             runs already, at {standing.ui_url}")
        if standing.host not in LOOPBACK:
            tell(
                f"warning            --host {standing.host} without TLS: whoever listens on the way reads the secret; "
                "put a proxy with TLS before it, or leave out --host and come through `ssh -L`"
            )
        for change in deployed(project, self._environment(standing), overwrite=overwrite, forget=forget):
            tell(line_of(change))
        standing = self._with_worker(standing, tell)
        where = f"in {self.secret_file}" if not settings.server_secret() else f"that of {settings.SERVER_SECRET}"
        tell(f"secret             {f'{self.secret}, kept ' if is_new else ''}{where}")
        return standing

    def use_secret_for(self, url: str) -> None:
        """Has Prefect's clients in this process bring the secret, if the server that they ask is the one that is up.

        Args:
            url: the API that is asked.
        """
        standing = self._standing()
        if standing and same_server(url, standing.api_url):
            settings.use_client_secret(self.secret)

    def _require_same_secret(self, standing: Standing) -> None:
        """Finds out whether the server that runs answers to the secret, and to nobody without.

        Raises:
            SettingsError: it does not.
        """
        if self._asked(standing, *_ANY_QUESTION, secret="")[0] == http.HTTPStatus.OK:
            raise SettingsError(
                f"the server at {standing.ui_url} was started without a secret, by an earlier release; "
                "`podline down` and `podline up` start it with one"
            )
        if self._asked(standing, *_ANY_QUESTION, secret=self.secret)[0] == http.HTTPStatus.UNAUTHORIZED:
            given = (
                "is another one" if settings.server_secret() else f"is not set, nor is it that in {self.secret_file}"
            )
            raise SettingsError(
                f"the server at {standing.ui_url} was started with a secret: {settings.SERVER_SECRET} {given}; set it "
                "to the same, or stop the server with `podline down`"
            )

    def _with_worker(self, standing: Standing, tell: Callable[[str], None]) -> Standing:
        if standing.worker is not None:
            tell(f"worker             of the pool {POOL} runs already")
            return standing
        command = ["prefect", "worker", "start", "--pool", POOL, "--name", f"podline on {socket.gethostname()}"]
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
            with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
                pass
        except OSError as error:
            raise SettingsError(
                f"--host {host} --port {port}: nobody can listen there ({error.strerror}); give another --port"
            ) from error
        standing = Standing(host=host, port=port, server=0)
        server = self._start(standing, "server", ["tasks.serving", "--host", host, "--port", str(port)])
        standing = standing.model_copy(update={"server": server.pid})
        self._write(standing)
        self._until(server, "server", lambda: self._asked(standing, "GET", "/api/health")[1] is True)
        tell(f"server             is there, at {standing.ui_url}")
        return standing

    def _start(self, standing: Standing, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.logs / f"{name}.log").open("ab") as output:
            return subprocess.Popen(  # noqa: S603 (ours or Prefect's, in our own interpreter)
                [sys.executable, "-P", "-m", *command],
                cwd=self._folder,
                env=self._environment(standing),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self, standing: Standing) -> dict[str, str]:
        mark = {MARK: str(self._folder)}
        return settings.standing_prefect(self.home, standing.api_url, self.secret, self.root, mark)

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
        path = f"/api/work_pools/{POOL}/workers/filter"
        status, workers = self._asked(standing, "POST", path, b"{}", secret=self.secret)
        return status == http.HTTPStatus.OK and any(worker["status"] == "ONLINE" for worker in workers)

    @staticmethod
    def _asked(
        standing: Standing, method: str, path: str, body: bytes | None = None, *, secret: str = ""
    ) -> tuple[int, Any]:
        """The status and the document that the server answers with; 0 and None if it does not answer."""
        connection = http.client.HTTPConnection(urlsplit(standing.ui_url).hostname or "", standing.port, timeout=5)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **header(secret)})
            answer = connection.getresponse()
            return answer.status, json.load(answer)
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()

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


def use_secret(machine: Settings) -> None:
    """Has Prefect's clients in this process bring the secret of the server that they ask, if ``podline up`` started it.

    To be called before Prefect is imported. A secret that is set counts.
    """
    url = settings.asked_server()
    # A root that cannot be opened is no server's.
    with contextlib.suppress(PodlineError):
        if url and not settings.has_client_secret():
            Place(machine).use_secret_for(url)


def same_server(one: str, other: str) -> bool:
    """Whether two addresses are of one server; the names of the loopback are one."""
    return _reached(one) == _reached(other)


def _reached(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return "loopback" if parts.hostname in LOOPBACK else parts.hostname, parts.port
