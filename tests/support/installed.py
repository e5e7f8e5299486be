"""Podline as others install it: a wheel and a lock file in an environment of their own, and commands typed far away."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from standing_prefect import Standing, started

PROJECT = Path(__file__).resolve().parent.parent.parent
# Of what the images are made as well; see test_service_files.
SOURCES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "prefect.yaml", "podline", "docs")
SOURCES += ("beam_jobs", "tasks", "flows", "deployments")
# How this machine reaches its package index; nothing else of the tests' environment is handed on.
_OF_INDEX = ("PIP_", "UV_", "SSL_CERT_", "REQUESTS_CA_BUNDLE")
_HANDED_ON = ("LANG", "TERM")


def build_wheel(folder: Path) -> Path:
    """Build a wheel from a copy of the sources as `make wheel` does, by way of an sdist."""
    sources = folder / "sources"
    sources.mkdir()
    for name in SOURCES:
        if (PROJECT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(PROJECT / name, sources / name, symlinks=True, ignore=ignored)
        else:
            shutil.copyfile(PROJECT / name, sources / name)
    build = [Path(sys.executable).with_name("uv"), "build", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*build, "--quiet", "--offline", "--out-dir", folder, sources], check=True)
    [built] = folder.glob("*.whl")
    return built


def install(environment: Path, lock: str, wheel: Path) -> Path:
    """Install a wheel with a lock file alone, as docs/how-to/install.md says; return the folder of its programs."""
    command = ["bash", "deployments/setup.sh", str(environment), str(PROJECT / "deployments" / lock), str(wheel)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    # That of CI, or the interpreter of this environment.
    python = os.environ.get("PYTHON") or getattr(sys, "_base_executable", sys.executable)
    environ = {**kept, "PYTHON": python}
    done = subprocess.run(command, cwd=PROJECT, env=environ, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return environment / "bin"


class Installed:
    """A person who types commands in the folder ``here``; nothing of this checkout is in the environment."""

    def __init__(self, programs: Path, here: Path, home: Path, **variables: str) -> None:
        here.mkdir(parents=True, exist_ok=True)
        home.mkdir(parents=True, exist_ok=True)
        self.programs, self.here = programs, here
        index = {name: value for name, value in os.environ.items() if name.startswith(_OF_INDEX)}
        # pip's own file of a person is looked for in the home.
        if (configured := Path.home() / ".config" / "pip" / "pip.conf").is_file():
            index = {"PIP_CONFIG_FILE": str(configured), **index}
        self.environment = {
            **index,
            **{name: os.environ[name] for name in _HANDED_ON if name in os.environ},
            "PATH": f"{programs}{os.pathsep}{os.defpath}",
            "HOME": str(home),
            "PODLINE_SERVER_TIMEOUT": "300",
            "PODLINE_TRAIN_LOCK": "",
            **variables,
        }

    def run(self, *command: str, expected: int = 0, cwd: Path | None = None, **variables: str) -> str:
        """Return what a command writes to standard output; its exit code must be the expected one."""
        done = self.result(*command, cwd=cwd, **variables)
        assert done.returncode == expected, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def result(self, *command: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """Return what became of a command."""
        return subprocess.run(
            command,
            cwd=cwd or self.here,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )

    def podline(self, *arguments: str, expected: int = 0, **variables: str) -> str:
        """Return what a command of Podline writes to standard output."""
        return self.run("podline", *arguments, expected=expected, **variables)

    @contextlib.contextmanager
    def up(self, command: Sequence[str], port: int, cwd: Path, root: Path) -> Iterator[Standing]:
        """A server, a worker and deployments, by a command that names the port and the root."""
        log = self.here.with_name("up.log")
        with started(command, self.environment, log, cwd) as process:
            yield Standing(root, f"http://127.0.0.1:{port}", self.environment, process, log)
