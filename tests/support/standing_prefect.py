"""``podline up`` as a person types it, in a folder of its own and with an empty home, and ``podline down`` after it."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

PROJECT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Standing:
    """What is up.

    Attributes:
        root: the store; server and worker keep what is theirs in it.
        url: the server's, without a path.
        environment: of whoever types a command.
        said: what the command that started it said.
    """

    root: Path
    url: str
    environment: dict[str, str] = field(repr=False)
    said: str = field(repr=False)

    @property
    def logs(self) -> Path:
        """What server and worker say."""
        return self.root / ".podline" / "standing" / "logs"

    @property
    def secret(self) -> str:
        """The one that was given, or else the one that was made."""
        given = self.environment.get("PREFECT_SERVER_API_AUTH_STRING")
        return given or (self.logs.parent / "secret").read_text().strip()

    @property
    def header(self) -> dict[str, str]:
        """By which a request brings the secret."""
        return {"Authorization": f"Basic {base64.b64encode(self.secret.encode()).decode()}"}

    def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """The server's answer to a question to its API, asked with the secret."""
        answer = httpx.post(f"{self.url}/api/{path}", json=body, headers=self.header, timeout=60)
        return answer.raise_for_status().json()

    def command(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command of Podline's, with more variables."""
        return _podline(*arguments, environment={**self.environment, **more})


@contextlib.contextmanager
def podline_up(folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[Standing]:
    """A server, a worker and the deployments.

    Args:
        folder: the root and the home are made in it.
        variables: of the environment, besides the usual ones.
    """
    (folder / "home").mkdir()
    foreign = ("PREFECT_", "PODLINE_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    ours = {"HOME": str(folder / "home"), "PODLINE_SERVER_TIMEOUT": "300"}
    environment = {**kept, **ours, **(variables or {})}
    root, port = folder / "root", _free_port()
    try:
        place = ("--root", str(root))
        up = _podline("up", *place, "--port", str(port), "--project", str(PROJECT), environment=environment)
        assert up.returncode == 0, up.stdout + up.stderr
        yield Standing(root, f"http://127.0.0.1:{port}", environment, up.stdout)
    finally:
        down = _podline("down", *place, environment=environment)
        assert down.returncode == 0, down.stdout + down.stderr


def _podline(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "podline.cli", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]
