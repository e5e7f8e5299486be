"""``podline up`` as a person types it, in a folder of its own and with an empty home; Ctrl-C ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from free_ports import free_ports

PROJECT = Path(__file__).resolve().parent.parent.parent
_READY = "to stop            Ctrl-C"


@dataclass(frozen=True)
class Standing:
    """What is up.

    Attributes:
        root: the store; server and worker keep what is theirs in it.
        url: the server's, without a path.
        environment: of whoever types a command.
        process: ``podline up`` itself.
        log: has all that it says.
    """

    root: Path
    url: str
    environment: dict[str, str] = field(repr=False)
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pages(self) -> str:
        """The address of the pages of the store."""
        return f"http://127.0.0.1:{int(self.url.rpartition(':')[2]) + 1}"

    @property
    def folder(self) -> Path:
        """Where server and worker keep what is theirs; it marks their processes."""
        return self.root / ".podline" / "server"

    @property
    def secret(self) -> str:
        """The one that was given, or else the one that was made."""
        given = self.environment.get("PREFECT_SERVER_API_AUTH_STRING")
        return given or (self.folder / "secret").read_text().strip()

    @property
    def pages_secret(self) -> str:
        """That of the pages."""
        return (self.folder / "pages-secret").read_text().strip()

    @staticmethod
    def login(secret: str) -> httpx.BasicAuth:
        """What a request brings with it that is asked with a secret."""
        return httpx.BasicAuth(*secret.split(":", 1))

    def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """The server's answer to a question to its API, asked with the secret."""
        answer = httpx.post(f"{self.url}/api/{path}", json=body, auth=self.login(self.secret), timeout=60)
        return answer.raise_for_status().json()

    def command(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command of Podline's, with more variables."""
        command = [sys.executable, "-m", "podline.cli", *arguments]
        environment = {**self.environment, **more}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)


@contextlib.contextmanager
def podline_up(folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[Standing]:
    """A server, a worker and the deployments; after the body, nothing of it may be left.

    Args:
        folder: the root and the home are made in it.
        variables: of the environment, besides the usual ones.
    """
    (folder / "home").mkdir()
    foreign = ("PREFECT_", "PODLINE_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    ours = {"HOME": str(folder / "home"), "PODLINE_SERVER_TIMEOUT": "300"}
    environment = {**kept, **ours, **(variables or {})}
    [port] = free_ports(1)
    command = (sys.executable, "-m", "podline.cli", "up", "--root", str(folder / "root"), "--port", str(port))
    with started(command, environment, folder / "up.log") as process:
        yield Standing(folder / "root", f"http://127.0.0.1:{port}", environment, process, folder / "up.log")


@contextlib.contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str], log: Path, cwd: Path = PROJECT
) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs ``podline up``, from the moment that all is there; Ctrl-C in its terminal ends it."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 600
        while _READY not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait(180)
