"""``podline up`` and ``down``: a Prefect server and a worker that outlive the command.

They are found again by a mark in their environment, which all that they start inherits: whatever is to be stopped is
told from what others started. Nothing here imports Prefect: this process only starts others.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from podline import settings
from podline.deployments import project_file
from podline.deployments.deployment_process import deployed, line_of
from podline.deployments.guard import LOOPBACK, url_of
from podline.deployments.started import STOP_SECONDS, Started
from podline.errors import PodlineError, SettingsError
from podline.frozen import Frozen
from podline.settings import Settings
from podline.store.contract import explained
from podline.store.opening import open_store
from podline.supervision import processes
from podline.tasks.secret import header, kept, kept_or_made

MARK = "_PODLINE_STANDING"
POOL = "cpu"
_FOLDER, _HOME, _LOGS = "standing", "prefect", "logs"
# What nobody may ask without the secret.
_ANY_QUESTION = ("GET", "/api/admin/version")
_POLL = 0.2
LEAVE_SECONDS = 60.0
"""How long a worker that is asked to end waits for its runs, which save their work."""
_SERVER, _WORKER = "podline.deployments.server", "podline.deployments.worker"
# As an earlier release starts a worker.
_OLD_WORKER = ["worker", "start"]


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
            PodlineError: a process ends at once, does not answer in time, or refuses; what was started is ended again.
        """
        project = project.resolve()
        project_file.read(project)
        for part in (_HOME, _LOGS):
            self._store.own_folder(_FOLDER, part)
        with explained("write the secret to", self.secret_file):
            is_new = not settings.server_secret() and kept_or_made(self.secret_file)[1]
        with self._alone(tell), Started() as started:
            standing = self._with_server(host, port, tell, started)
            if standing.host not in LOOPBACK:
                tell(
                    f"warning            --host {standing.host} without TLS: whoever listens on the way reads the "
                    "secret; put a proxy with TLS before it, or leave out --host and come through `ssh -L`"
                )
            for change in deployed(project, self._environment(standing), overwrite=overwrite, forget=forget):
                tell(line_of(change))
            standing = self._with_worker(standing, tell, started)
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

    @contextlib.contextmanager
    def _alone(self, tell: Callable[[str], None]) -> Iterator[None]:
        """While the body runs, no other process starts anything here."""
        with (self._folder / "lock").open("w") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tell("waits              for another `podline up` of the same root")
                fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def _with_server(self, host: str, port: int, tell: Callable[[str], None], started: Started) -> Standing:
        standing = self._standing()
        if standing is None:
            worker = self._taken_over(host, port, tell)
            return self._serve(host, port, tell, started).model_copy(update={"worker": worker})
        self._require_same_secret(standing)
        tell(f"server             runs already, at {standing.ui_url}")
        return standing

    def _taken_over(self, host: str, port: int, tell: Callable[[str], None]) -> int | None:
        """The worker whose server is gone, if it is one and finds the new server where the old one was.

        Whatever else there is is ended, so that there are never two workers.
        """
        noted, workers = self._noted(), self._workers()
        is_found = noted is not None and (noted.host, noted.port) == (host, port)
        kept = workers[0] if is_found and len(workers) == 1 else None
        needless = [process for process in workers if process != kept]
        if needless:
            tell(f"worker             left without its server: {len(needless)} ended")
            processes.end(lambda: [process for process in self._workers() if process != kept], self._patience)
        if not is_found:
            processes.end(self._ours, STOP_SECONDS)
        for process in [*needless, *self._of_kind(_SERVER)]:
            processes.kill_group(process)
        return kept

    def _with_worker(self, standing: Standing, tell: Callable[[str], None], started: Started) -> Standing:
        if standing.worker in self._workers():
            tell(f"worker             of the pool {POOL} runs already")
            self._write(standing)
            return standing
        began = datetime.now(UTC)
        worker = self._start(standing, "worker", [_WORKER, "--pool", POOL], started)
        standing = standing.model_copy(update={"worker": worker.pid})
        self._write(standing)
        self._until(worker, "worker", lambda: self._online(standing, began))
        tell(f"worker             of the pool {POOL} is there")
        return standing

    def down(self, tell: Callable[[str], None]) -> bool:
        """Stops all that :meth:`up` started, and what that started; a run that is in progress saves a checkpoint first.

        Returns:
            Whether there was anything.
        """
        if not self._ours():
            self._note.unlink(missing_ok=True)
            return False
        workers = self._workers()
        # Runs first, while there is a server that they tell of it.
        runs = [run for worker in workers for run in processes.children(worker)]
        if workers:
            tell(f"runs in progress   {len(runs)}" + ("; they save their work" if runs else ""))
        processes.end(self._workers, self._patience)
        servers = self._of_kind(_SERVER)
        processes.end(lambda: [process for process in self._ours() if process not in servers], STOP_SECONDS)
        processes.end(self._ours, STOP_SECONDS)
        processes.kill_marked(MARK, str(self._folder))
        self._note.unlink(missing_ok=True)
        return True

    @property
    def _patience(self) -> float:
        """For how long a worker may take its leave."""
        return LEAVE_SECONDS + STOP_SECONDS

    def _noted(self) -> Standing | None:
        """What was started last, whatever has become of it."""
        try:
            return Standing.model_validate_json(self._note.read_text())
        except (OSError, ValueError):
            return None

    def _standing(self) -> Standing | None:
        """What runs of what was started; None if the server does not."""
        noted, ours = self._noted(), self._ours()
        if noted is None or noted.server not in ours:
            return None
        return noted.model_copy(update={"worker": next(iter(self._workers()), None)})

    def _ours(self) -> list[int]:
        return processes.marked(MARK, str(self._folder))

    def _workers(self) -> list[int]:
        old = [each for each in self._of_kind("prefect") if processes.command(each)[4:6] == _OLD_WORKER]
        return [*self._of_kind(_WORKER), *old]

    def _of_kind(self, module: str) -> list[int]:
        """Of our processes those that run a module."""
        return [process for process in self._ours() if ["-m", module] == processes.command(process)[2:4]]

    def _serve(self, host: str, port: int, tell: Callable[[str], None], started: Started) -> Standing:
        try:
            with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
                pass
        except OSError as error:
            raise SettingsError(
                f"--host {host} --port {port}: nobody can listen there ({error.strerror}); give another --port"
            ) from error
        standing = Standing(host=host, port=port, server=0)
        server = self._start(standing, "server", [_SERVER, "--host", host, "--port", str(port)], started)
        standing = standing.model_copy(update={"server": server.pid})
        self._write(standing)
        self._until(server, "server", lambda: self._asked(standing, "GET", "/api/health")[1] is True)
        tell(f"server             is there, at {standing.ui_url}")
        return standing

    def _start(self, standing: Standing, name: str, command: list[str], started: Started) -> subprocess.Popen[bytes]:
        with (self.logs / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 (ours or Prefect's, in our own interpreter)
                [sys.executable, "-P", "-m", *command],
                cwd=self._folder,
                env=self._environment(standing),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started.add(process)
        return process

    def _environment(self, standing: Standing) -> dict[str, str]:
        mark = {MARK: str(self._folder)}
        return settings.standing_prefect(self.home, standing.api_url, self.secret, self.root, mark)

    def _until(self, process: subprocess.Popen[bytes], name: str, ready: Callable[[], bool]) -> None:
        """Waits for a process to be of use."""
        deadline = time.monotonic() + self._timeout
        while not ready():
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                what = f"ended with {process.returncode}" if ended else f"does not answer within {self._timeout:g} s"
                raise PodlineError(f"Prefect's {name} {what}; its last words are in {self.logs / name}.log")
            time.sleep(_POLL)

    def _online(self, standing: Standing, began: datetime) -> bool:
        """Whether a worker gave a sign of life after a moment: one that was killed counts as online for a while."""
        path = f"/api/work_pools/{POOL}/workers/filter"
        status, workers = self._asked(standing, "POST", path, b"{}", secret=self.secret)
        beats = [worker["last_heartbeat_time"] for worker in workers or ()] if status == http.HTTPStatus.OK else []
        return any(datetime.fromisoformat(beat) >= began for beat in beats if beat)

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
