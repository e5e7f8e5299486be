"""``podline up`` as a person types it, in a folder of its own and with an empty home; Ctrl-C ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from free_ports import free_ports
from waiting import wait_until

from podline.deployments.up import READY

PROJECT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Standing:
    """A running ``podline up``: its store, the server's address, the environment of commands, the process, its log."""

    root: Path
    url: str
    environment: dict[str, str] = field(repr=False)
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pages(self) -> str:
        return f"http://127.0.0.1:{int(self.url.rpartition(':')[2]) + 1}"

    @property
    def folder(self) -> Path:
        return self.root / ".podline" / "server"

    @property
    def secret(self) -> str:
        given = self.environment.get("PREFECT_SERVER_API_AUTH_STRING")
        return given or (self.folder / "secret").read_text().strip()

    @property
    def pages_secret(self) -> str:
        return (self.folder / "pages-secret").read_text().strip()

    @staticmethod
    def login(secret: str) -> httpx.BasicAuth:
        return httpx.BasicAuth(*secret.split(":", 1))

    def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        answer = httpx.post(f"{self.url}/api/{path}", json=body, auth=self.login(self.secret), timeout=60)
        return answer.raise_for_status().json()

    def command(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "podline.cli", *arguments]
        environment = {**self.environment, **more}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)


@contextlib.contextmanager
def podline_up(folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[Standing]:
    """Run ``podline up`` with a root and a home in a folder; nothing of it may be left after the body."""
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
        wait_until(lambda: READY in log.read_text() or process.poll() is not None, 600, log=log)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait(180)
