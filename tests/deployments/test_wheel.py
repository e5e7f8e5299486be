"""The package as somebody else installs it: what is in the wheel, and a night with it, far from any checkout."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from standing_prefect import free_port, started

PROJECT = Path(__file__).parent.parent.parent
# Of what the images are made as well; see test_service_files.
SOURCES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "prefect.yaml", "podline")
SOURCES += ("beam_jobs", "tasks", "flows", "deployments")
# Packages of everybody's; whoever imports one of these fails.
CLASHING = ("flows", "tasks", "tests", "beam_jobs")
STEPS = 120


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy as ``make wheel`` does, by way of an sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    sources.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (PROJECT / name).is_dir() else shutil.copyfile
        more = {"symlinks": True, "ignore": shutil.ignore_patterns("__pycache__")} if copy is shutil.copytree else {}
        copy(PROJECT / name, sources / name, **more)
    build = [Path(sys.executable).with_name("uv"), "build", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*build, "--quiet", "--offline", "--out-dir", folder, sources], check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_a_wheel_has_every_module_and_what_the_pages_are_made_of_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        deployments = archive.read("podline/deployments/prefect.yaml")
    # As they are imported: podline/flows and so on are links to folders. Images, units and locks are not part of it.
    files = {
        Path(folder, name).relative_to(PROJECT).as_posix()
        for folder, _, names in os.walk(PROJECT / "podline", followlinks=True)
        for name in names
        if "__pycache__" not in folder and ("deployments" not in folder or name.endswith((".py", "prefect.yaml")))
    }
    assert found == files
    assert {"podline/flows/training.py", "podline/tasks/node/__init__.py", "podline/reporting/page.css"} < found
    assert deployments == (PROJECT / "prefect.yaml").read_bytes()


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of an environment with the wheel in it; its dependencies are those of this environment."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    programs = environment / "bin"
    _pip("--python", str(programs / "python"), "install", "--no-deps", "--no-index", str(wheel))
    (site,) = environment.glob("lib/python*/site-packages")
    # Its packages alone: the .pth by which our checkout is installed there is not read in a folder that a .pth names.
    (site / "dependencies.pth").write_text(f"{Path(httpx.__file__).parent.parent}\n")
    return programs


@pytest.mark.slow
def test_installed_it_runs_is_deployed_and_retries_beside_packages_of_the_same_names(
    programs: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    for name in CLASHING:
        (here / name).mkdir(parents=True)
        (here / name / "__init__.py").write_text(f"raise RuntimeError('somebody else has {name}')\n")
    it = Installed(programs, here, tmp_path)
    assert it.python("import podline; print(podline.__file__)").startswith(str(programs.parent))

    answer = it.podline("run", "sample", "--root", "run-root", "--steps", str(STEPS))
    assert "report" in answer

    with it.up("up-root"):
        said = it.log.read_text()
        site = it.python("import podline; print(podline.__path__[0])")
        assert f"deployments        of {site}/deployments/prefect.yaml" in said
        assert "cifar-manual: made" in said
        deployment = it.ask("GET", "deployments/name/training/cifar-manual")
        assert deployment["entrypoint"] == "podline.flows.training.training"
        assert not deployment["pull_steps"]
        again = it.podline("deploy", PREFECT_API_URL=f"{it.url}/api", PODLINE_ROOT="up-root")
        assert not [line for line in again.splitlines() if line.endswith(("made", "changed"))]

        source = tmp_path / "drawn"
        parameters = {"recipe": "sample", "source": str(source), "training": {"steps": STEPS}}
        given = {"parameters": {"parameters": parameters}}
        run = it.ask("POST", f"deployments/{deployment['id']}/create_flow_run", given)["id"]
        # There is no such folder yet.
        assert str(source) in it.end_of(run, "FAILED")["message"]
        it.podline("data", "draw", str(source))
        retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": False}
        assert it.ask("POST", f"flow_runs/{run}/set_state", retry)["status"] == "ACCEPT"
        it.end_of(run, "COMPLETED")
        # Where it was typed, not where the run worked.
        assert list((here / "up-root" / "runs").glob("*/report.html"))
    assert {path.name for path in here.iterdir()} == {*CLASHING, "run-root", "up-root"}


class Installed:
    """Somebody who types commands in a folder, with nothing of this checkout in the environment."""

    def __init__(self, programs: Path, here: Path, home: Path) -> None:
        self._programs, self._here = programs, here
        foreign = ("PREFECT_", "PODLINE_", "PYTHON", "VIRTUAL_ENV", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self._environment = {**kept, "HOME": str(home), "PODLINE_SERVER_TIMEOUT": "300"}
        self.port, self.log = free_port(), home / "up.log"
        self.url = f"http://127.0.0.1:{self.port}"

    def up(self, root: str) -> contextlib.AbstractContextManager[Any]:
        """``podline up``, while the body runs."""
        options = ["--root", root, "--port", str(self.port)]
        return started(options, self._environment, self.log, (str(self._programs / "podline"),), self._here)

    def podline(self, *arguments: str, **variables: str) -> str:
        """What a command says."""
        return self._said([str(self._programs / "podline"), *arguments], variables)

    def python(self, code: str) -> str:
        """What a line of Python prints."""
        return self._said([str(self._programs / "python"), "-c", code], {}).strip()

    def _said(self, command: list[str], variables: dict[str, str]) -> str:
        environment = {**self._environment, **variables}
        done = subprocess.run(
            command, cwd=self._here, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The server's answer, asked as its page asks."""
        secret = (self._here / "up-root/.podline/server/secret").read_bytes().strip()
        header = {"Authorization": f"Basic {base64.b64encode(secret).decode()}"}
        answer = httpx.request(method, f"{self.url}/api/{path}", json=body, headers=header, timeout=60)
        return answer.raise_for_status().json()

    def end_of(self, run: str, kind: str) -> dict[str, Any]:
        """The state in which a run ends, which is of this kind."""
        deadline = time.monotonic() + 300
        while (state := self.ask("GET", f"flow_runs/{run}")["state"])["type"] not in ("COMPLETED", "FAILED", "CRASHED"):
            assert time.monotonic() < deadline, state
            time.sleep(0.5)
        assert state["type"] == kind, state
        return state


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
