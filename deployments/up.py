"""``podline up``: a Prefect server, the pages, a worker and all deployments in the foreground, until Ctrl-C.

This module does not import Prefect: the process only starts other processes, shows their output, and ends them.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO
from urllib.parse import urlsplit

from podline.base.errors import PodlineError, SettingsError
from podline.base.secret import checked, kept, kept_or_made
from podline.deployments import project_file
from podline.settings import environment
from podline.settings.machine import Settings, variable_of
from podline.stages.supervision import processes
from podline.store.contract import explained
from podline.store.locks import locked
from podline.store.opening import open_store

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# A server that listens on all addresses can also be reached at these.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (not an address to listen at)
POOL = "cpu"
MARK = "_PODLINE_UP"
"""A variable with the folder, which all processes of a ``podline up`` inherit."""
READY = "to stop            Ctrl-C"
"""The line that is printed when everything is ready."""
LEAVE_SECONDS = 60.0
"""How long a worker that is ending waits for its runs to save their work."""
_STOP_SECONDS = 15.0
_POLL = 0.2
_FOLDER = "server"
_LIFELINE = ("--until-input-ends",)
_HANG_UP = 128 + signal.SIGHUP


class UpFolder:
    """The folder under a root with the files of ``podline up``'s server and worker."""

    def __init__(self, machine: Settings) -> None:
        self._store = open_store(machine.root)
        self._root, self._pages, self._folder = self._store.uri, machine.pages.url, self._store.scratch / _FOLDER
        self._secret_file, self._lock = self._folder / "secret", self._folder / "lock"

    def up(self, host: str, port: int, project: Path, say: Callable[[str], None], timeout: float) -> None:
        """Start and deploy everything; when a process has ended, or at a signal, end the others and raise an error.

        Args:
            host: the address to listen on.
            port: the server's port; the pages use the next port.
            project: the folder with ``prefect.yaml``.
            say: called with each line for the terminal.
            timeout: the time limit for the server's first answer, in seconds.

        Raises:
            SettingsError: a port is taken, ``prefect.yaml`` or a secret is invalid, or another ``podline up`` uses this
                root.
            PodlineError: a process ended, or the server does not answer in time.
        """
        project = project.resolve()
        project_file.read(project)
        self._store.own_folder(_FOLDER, "prefect")
        with locked(self._lock, wait=False) as is_free:
            if not is_free:
                raise SettingsError(f"{self._root}: `podline up` already runs for it, at {self._addresses()[0]}")
            for each in (port, port + 1):
                _require_free(host, each)
            url, pages = _url_of(host, port), self._pages or _url_of(host, port + 1)
            self._lock.write_text(f"{url}\n{pages}")
            secret = _secret("secret", environment.SERVER_SECRET, self._secret_file, say)
            for_pages = _secret("secret of pages", environment.PAGES_SECRET, self._folder / "pages-secret", say)
            if host not in LOOPBACK:
                say(
                    f"warning            --host {host} has no TLS: anyone on the network path can read the secret; use "
                    "a TLS proxy, or omit --host and use `ssh -L`"
                )
            ours = {MARK: str(self._folder), variable_of("root"): self._root, variable_of("pages.url"): pages}
            ours[environment.PAGES_SECRET] = for_pages
            variables = environment.server_environment(self._folder / "prefect", f"{url}/api", secret, ours)
            with Programs(variables, self._folder, say) as programs:
                for name, at in (("server", port), ("pages", port + 1)):
                    programs.start(name, f"podline.deployments.{name}", *_LIFELINE, "--host", host, "--port", str(at))
                programs.wait_until(lambda: _answers(url), timeout)
                programs.finish("deploy", "podline.cli", "deploy", "--project", str(project))
                programs.start("worker", "podline.cli", "worker", *_LIFELINE, "--pool", POOL)
                say(f"open               {url}")
                say(f"pages              {pages}")
                say(READY)
                programs.wait_until(lambda: False)

    def use_secret_for(self, url: str) -> None:
        """Make Prefect's clients in this process send the secret, if ``podline up`` runs and ``url`` is its server.

        Links then also lead to its pages. Variables that the user has set take precedence.
        """
        if not self._lock.exists():
            return
        with locked(self._lock, wait=False) as is_free:
            address, pages = self._addresses()
            if is_free or _reached(url) != _reached(address):
                return
            with explained("read the secret in", self._secret_file):
                environment.use_client_secret(
                    environment.value_of(environment.SERVER_SECRET) or kept(self._secret_file)
                )
            if pages and not self._pages:
                environment.export({variable_of("pages.url"): pages})

    def _addresses(self) -> tuple[str, str]:
        """Return the addresses of the server and pages of the ``podline up`` that holds the lock."""
        server, _, pages = self._lock.read_text().partition("\n")
        return server, pages


class Programs:
    """A context with processes that end together; each line of their output is prefixed with the process name.

    A process also ends when this process has ended in any way: its standard input is a pipe that then closes.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path, say: Callable[[str], None]) -> None:
        self._environment, self._folder, self._say = environment, folder, say
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._shown: list[threading.Thread] = []

    def __enter__(self) -> Programs:
        """Handle SIGHUP (the terminal was closed) like Ctrl-C, unless ``nohup`` makes this process ignore it."""
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, _raise_hang_up)
        return self

    def start(self, name: str, module: str, *arguments: str) -> subprocess.Popen[str]:
        """Start ``python -m module``."""
        process = subprocess.Popen(  # noqa: S603 (our own, in our own interpreter)
            [sys.executable, "-P", "-m", module, *arguments],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C in the terminal only reaches this process, which ends the others in order.
            start_new_session=True,
        )
        self._running[name] = process
        assert process.stdout is not None  # noqa: S101 (it is a pipe)
        self._shown.append(threading.Thread(target=self._show, args=(name, process.stdout), daemon=True))
        self._shown[-1].start()
        return process

    def finish(self, name: str, module: str, *arguments: str) -> None:
        """Run ``python -m module`` until it ends.

        Raises:
            PodlineError: it failed.
        """
        process = self.start(name, module, *arguments)
        self.wait_until(lambda: process.poll() == 0)
        del self._running[name]
        _close(process)

    def wait_until(self, ready: Callable[[], bool], timeout: float = float("inf")) -> None:
        """Wait for a condition while all processes run.

        Raises:
            PodlineError: a process ended, or the condition did not become true in time.
        """
        deadline = time.monotonic() + timeout
        while True:
            ended = [(name, process) for name, process in self._running.items() if process.poll() is not None]
            if ready():
                return
            for name, process in ended:
                raise PodlineError(f"the {name} ended with exit code {process.returncode}; its last lines are above")
            if time.monotonic() > deadline:
                raise PodlineError(f"the server did not answer within {timeout:g} s, the setting server_timeout")
            time.sleep(_POLL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the worker, whose runs save their work, then all others except the server, then the server."""
        # A closing terminal may send the signal twice.
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            worker, server = self._running.get("worker"), self._running.get("server")
            if worker and worker.poll() is None:
                self._tell("ending: runs in progress save their work; Ctrl-C again kills them")
                _end(worker, LEAVE_SECONDS + _STOP_SECONDS)
            processes.end(lambda: [each for each in self._marked() if not server or each != server.pid], _STOP_SECONDS)
            if server:
                _end(server, _STOP_SECONDS)
        finally:
            processes.kill_marked(MARK, str(self._folder))
            for process in self._running.values():
                _close(process)
            for thread in self._shown:
                thread.join(_STOP_SECONDS)
            signal.signal(signal.SIGHUP, signal.SIG_DFL if before is _raise_hang_up else before)

    def _marked(self) -> list[int]:
        return processes.marked(MARK, str(self._folder))

    def _show(self, name: str, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self._tell(f"{name:<7}| {line.rstrip()}")

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the terminal has closed
            self._say(line)


def use_secret(machine: Settings) -> None:
    """Make Prefect's clients in this process send the server's secret, if it is the server of ``podline up``.

    This must be called before Prefect is imported.
    """
    url = environment.value_of("PREFECT_API_URL")
    # A root that cannot be opened has no server.
    with contextlib.suppress(PodlineError):
        if url:
            UpFolder(machine).use_secret_for(url)


def _secret(title: str, variable: str, file: Path, say: Callable[[str], None]) -> str:
    """Return the secret that the user has set, or that of ``file``, which is created if missing; say where it is.

    Raises:
        SettingsError: the secret is not ``user:password``.
        StoreError: the file can be neither read nor written.
    """
    secret, source = environment.value_of(variable), variable
    if not secret:
        with explained("write the secret to", file):
            secret, source = kept_or_made(file), str(file)
    say(f"{title:<19}in {source}")
    return checked(secret, source)


def _url_of(host: str, port: int) -> str:
    """Return a server's address on its own machine, without a path."""
    name = _EVERYWHERE.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _require_free(host: str, port: int) -> None:
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except OSError as error:
        remedy = "end the program that uses it, perhaps another `podline up`, or choose another --port"
        if error.errno != errno.EADDRINUSE:
            remedy = "choose an address of this machine as --host, like 127.0.0.1 or ::1, and a --port above 1023"
        raise SettingsError(f"--host {host} --port {port}: cannot listen ({error.strerror}); {remedy}") from error


def _answers(url: str) -> bool:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
    try:
        connection.request("GET", "/api/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end(process: subprocess.Popen[str], seconds: float) -> None:
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        processes.kill_group(process.pid)


def _close(process: subprocess.Popen[str]) -> None:
    process.wait()
    assert process.stdin is not None  # noqa: S101 (it is a pipe)
    process.stdin.close()


def _reached(url: str) -> tuple[str | None, int | None]:
    """Return a server's host and port for comparison; all names of the loopback interface are equal."""
    parts = urlsplit(url)
    return "loopback" if parts.hostname in LOOPBACK else parts.hostname, parts.port


def _raise_hang_up(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(_HANG_UP)
