"""The package as somebody else installs it: what is in the wheel, and a night with it, far from any checkout."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_ports import free_ports
from prefect_servers import wait_until
from standing_prefect import Standing, started

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
    site = it.run("python", "-c", "import podline; print(podline.__path__[0])").strip()
    assert site.startswith(str(programs.parent))

    assert "report" in it.run("podline", "run", "sample", "--root", "run-root", "--steps", str(STEPS))

    with it.up("up-root") as up:
        said = up.log.read_text()
        assert f"deployments        of {site}/deployments/prefect.yaml" in said
        assert "cifar-manual: made" in said
        [deployment] = up.ask("deployments/filter", {"deployments": {"name": {"any_": ["cifar-manual"]}}})
        assert deployment["entrypoint"] == "podline.flows.training.training"
        assert not deployment["pull_steps"]
        again = it.run("podline", "deploy", PREFECT_API_URL=f"{up.url}/api", PODLINE_ROOT="up-root")
        assert not [line for line in again.splitlines() if line.endswith(("made", "changed"))]

        source = tmp_path / "drawn"
        parameters = {"recipe": "sample", "source": str(source), "training": {"steps": STEPS}}
        given = {"parameters": {"parameters": parameters}}
        run = up.ask(f"deployments/{deployment['id']}/create_flow_run", given)["id"]
        # There is no such folder yet.
        failed = ended(up, run)
        assert (failed["type"], str(source) in failed["message"]) == ("FAILED", True), failed
        it.run("podline", "data", "draw", str(source))
        retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": False}
        assert up.ask(f"flow_runs/{run}/set_state", retry)["status"] == "ACCEPT"
        assert ended(up, run)["type"] == "COMPLETED"
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

    @contextlib.contextmanager
    def up(self, root: str) -> Iterator[Standing]:
        [port], log = free_ports(1), self._here.with_name("up.log")
        options, command = ["--root", root, "--port", str(port)], (str(self._programs / "podline"),)
        with started(options, self._environment, log, command, self._here) as process:
            yield Standing(self._here / root, f"http://127.0.0.1:{port}", self._environment, process, log)

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self._here,
            env={**self._environment, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def ended(up: Standing, run: str) -> dict[str, Any]:
    wanted = {"flow_runs": {"id": {"any_": [run]}}}

    def state() -> dict[str, Any]:
        return up.ask("flow_runs/filter", wanted)[0]["state"]

    wait_until(lambda: state()["type"] in ("COMPLETED", "FAILED", "CRASHED"), every=0.5)
    return state()


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
