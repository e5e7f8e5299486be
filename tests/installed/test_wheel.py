"""The package works as somebody else installs it: a wheel and deployments/cpu.lock, far from any checkout."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_ports
from installed import PROJECT, Installed, build_wheel, install
from standing_prefect import Standing
from waiting import wait_until

# Common names of packages; an import of one of these fails.
CLASHING = ("flows", "tasks", "tests", "beam_jobs", "deployments", "docs")
# What extras bring; the modules that need them are imported in `test_an_extra…`.
OF_EXTRAS = ("cleanlab", "threadpoolctl")
SHORT = ("--epochs", "1")
IMPORTS = """
import importlib, pkgutil, sys, podline
for found in pkgutil.walk_packages(podline.__path__, "podline."):
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        print(found.name, error.name)
"""
NOTEBOOK = """
from podline import notebook
from podline.recipes import registry

_, root, run = sys.argv
recipe = registry.override(registry.get("sample"), {"duration.steps": 6, "batch_size": 64})
assert notebook.batch("sample", root, step=0).stored["image"].shape[1:] == (32, 32, 3)
examples = notebook.open_dataset("sample", root)
assert notebook.fit(recipe, root).run != run
notebook.evaluate(run, root)
[predicted] = notebook.predict(run, root, [examples[0]["image"]])
print(predicted.prediction.classes[0].name)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_a_wheel_has_every_module_and_what_the_pages_are_made_of_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        deployments = archive.read("podline/deployments/prefect.yaml")
    # As they are imported: podline/flows and so on are links to folders. Images, units, locks and docs/models are not
    # part of it.
    files = {
        Path(folder, name).relative_to(PROJECT).as_posix()
        for folder, _, names in os.walk(PROJECT / "podline", followlinks=True)
        for name in names
        if "__pycache__" not in folder and ("deployments" not in folder or name.endswith((".py", "prefect.yaml")))
        if not name.endswith(".keras")
    }
    assert found == files
    assert {"podline/flows/training.py", "podline/tasks/node.py", "podline/report/page.css"} < found
    assert deployments == (PROJECT / "prefect.yaml").read_bytes()


@pytest.fixture(scope="module")
def person(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Works in a folder with packages of the same names as our top folders."""
    folder = tmp_path_factory.mktemp("a person's ü")
    person = Installed(install(folder / "nights venv", "cpu.lock", wheel), folder / "here", folder / "home")
    for name in CLASHING:
        (person.here / name).mkdir()
        (person.here / name / "__init__.py").write_text(f"raise RuntimeError('somebody else has {name}')\n")
    return person


@pytest.fixture(scope="module")
def trained(person: Installed) -> str:
    """The run of the sample in the root ``root``; it is the champion."""
    person.podline("run", "sample", "--root", "root", *SHORT)
    [run] = [path.name for path in (person.here / "root" / "runs").iterdir() if path.name.startswith("sample-")]
    person.podline("models", "promote", run, "--root", "root")
    return run


@pytest.mark.slow
def test_every_module_can_be_imported_with_the_lock_alone(person: Installed) -> None:
    failed = dict(line.split() for line in person.run("python", "-c", IMPORTS).splitlines())
    assert {name: package for name, package in failed.items() if package not in OF_EXTRAS} == {}
    site = person.run("python", "-c", "import podline; print(podline.__path__[0])").strip()
    assert site.startswith(str(person.programs.parent))


@pytest.mark.slow
def test_a_run_is_reported_promoted_asked_and_exported(person: Installed, trained: str) -> None:
    report = person.here / "root" / "runs" / trained / "report.html"
    assert "accuracy" in report.read_text()
    assert trained in person.podline("report", trained, "--root", "root")
    person.run("python", "-c", "from PIL import Image; Image.new('RGB', (40, 30), 'teal').save('picture.png')")
    assert "%" in person.podline("models", "predict", "--champion", "sample", "picture.png", "--root", "root")
    for form, file in (("saved-model", "1/saved_model.pb"), ("tflite", "1.tflite")):
        person.podline("models", "export", "sample", "exported", "--format", form, "--root", "root")
        assert (person.here / "exported" / "sample" / file).is_file()
    assert trained in person.podline("runs", "list", "--root", "root")
    assert "0 problems" in person.podline("store", "verify", "--root", "root")


@pytest.mark.slow
def test_values_are_searched_and_a_notebook_trains(person: Installed, trained: str) -> None:
    over = ("--over", "schedule.learning_rate=0.05,0.1", "--trials", "2", "--set", "duration.steps=6")
    assert "best" in person.podline("tune", "search", "sample", "--root", "root", *over)
    (person.here / "cells.py").write_text(f"import sys\n{NOTEBOOK}")
    assert person.run("python", "-P", "cells.py", "root", trained).strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "variables", "afterwards"),
    [
        ("models export sample exported --format onnx", {}, "exported/sample/1.onnx"),
        ("data suspects sample --parts 2 --set duration.steps=6", {}, None),
        # No server listens there, which is only a warning.
        ("run sample --epochs 1", {"PODLINE_TRACKING": "mlflow:http://127.0.0.1:9"}, None),
    ],
)
def test_what_lacks_an_extra_names_the_command_that_installs_it(
    person: Installed, trained: str, asked: str, variables: dict[str, str], afterwards: str | None
) -> None:
    command = ["podline", *asked.split(), "--root", "root"]
    refused = person.result(*command, **variables)
    assert refused.returncode == 2, refused.stderr
    [remedy] = re.findall("`(.*)`", refused.stderr)
    person.run(*shlex.split(remedy))
    person.run(*command, **variables)
    assert afterwards is None or (person.here / afterwards).is_file()


@pytest.mark.slow
def test_a_dask_cluster_of_the_same_environment_converts(person: Installed) -> None:
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    programs = (
        ["scheduler", "--host", "127.0.0.1", "--port", f"{port}", "--no-dashboard"],
        ["worker", f"tcp://{address}", "--nthreads", "1", "--no-dashboard"],
    )
    with contextlib.ExitStack() as running:
        for words in programs:
            process = subprocess.Popen(
                ["dask", *words], cwd=person.here, env=person.environment, stderr=subprocess.DEVNULL
            )
            running.callback(process.wait, 60)
            running.callback(process.terminate)
        assert "2,200 records" in person.podline("engine", "check", f"dask:{address}", "--root", "root")


@pytest.mark.slow
def test_each_make_target_of_a_new_project_works(person: Installed) -> None:
    # A blank and an umlaut in its path; the name is that of the folder.
    project = person.here / "größere Projekte" / "nightly_shapes"
    person.podline("init", str(project))
    [phony] = re.findall(r"^\.PHONY:(.*)$", (project / "Makefile").read_text(), re.MULTILINE)
    assert set(phony.split()) == {"install", "run", "test", "up", "deploy"}
    person.run("make", "install", cwd=project)
    tested = person.result("make", "test", cwd=project)
    assert (tested.returncode, "OK" in tested.stderr + tested.stdout) == (0, True), tested
    assert not re.search(r"cuda|tensorflow|absl", tested.stderr + tested.stdout, re.IGNORECASE)
    assert "report" in person.run("make", "run", "ROOT=their root", cwd=project)

    [port] = free_ports(1)
    parameters = {"recipe": "nightly_shapes", "training": {"steps": 120}}
    with person.up(("make", "up", f"PORT={port}"), port, project, project / "podline-root") as up:
        again = person.run("make", "deploy", f"PORT={port}", cwd=project)
        assert not [line for line in again.splitlines() if line.endswith("made")]
        # A worker has what the project registers.
        run = _triggered(up, "nightly_shapes-manual", parameters)
        assert _ended(up, run)["type"] == "COMPLETED"
    assert list((project / "podline-root" / "runs").glob("*/report.html"))


@pytest.mark.slow
def test_a_flow_that_failed_is_retried_beside_packages_of_the_same_names(person: Installed) -> None:
    [port] = free_ports(1)
    root = person.here / "up-root"
    with person.up(("podline", "up", "--root", root.name, "--port", str(port)), port, person.here, root) as up:
        said = up.log.read_text()
        assert re.search(r"deployments +from .*/podline/deployments/prefect.yaml", said)
        assert "sample-manual: made" in said
        source = person.here / "drawn later"
        parameters = {"recipe": "sample", "source": str(source), "training": {"steps": 120}}
        run = _triggered(up, "sample-manual", parameters)
        failed = _ended(up, run)
        assert (failed["type"], str(source) in failed["message"]) == ("FAILED", True), failed
        person.podline("data", "draw", str(source))
        retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}, "force": False}
        assert up.ask(f"flow_runs/{run}/set_state", retry)["status"] == "ACCEPT"
        assert _ended(up, run)["type"] == "COMPLETED"
        assert "Traceback" not in up.log.read_text()
    # Where it was typed, not where the run worked.
    assert list((root / "runs").glob("*/report.html"))


def _triggered(up: Standing, deployment: str, parameters: dict[str, Any]) -> str:
    [found] = up.ask("deployments/filter", {"deployments": {"name": {"any_": [deployment]}}})
    assert found["entrypoint"] == "podline.flows.training.training"
    assert not found["pull_steps"]
    body = {"parameters": {"parameters": parameters}}
    return up.ask(f"deployments/{found['id']}/create_flow_run", body)["id"]


def _ended(up: Standing, run: str) -> dict[str, Any]:
    wanted = {"flow_runs": {"id": {"any_": [run]}}}

    def state() -> dict[str, Any]:
        return up.ask("flow_runs/filter", wanted)[0]["state"]

    wait_until(lambda: state()["type"] in ("COMPLETED", "FAILED", "CRASHED"), every=0.5)
    return state()


@pytest.mark.long
def test_the_sample_runs_with_the_lowest_versions(tmp_path: Path) -> None:
    lock = tmp_path / "lowest.txt"
    compiled = [Path(sys.executable).with_name("uv"), "pip", "compile", PROJECT / "pyproject.toml", "--extra", "cpu"]
    options = ["--resolution", "lowest-direct", "--generate-hashes", "--quiet", "--output-file", lock]
    subprocess.run([*compiled, *options, "--python-version", "3.11"], check=True, timeout=600)
    programs = install(tmp_path / "venv", str(lock), build_wheel(tmp_path))
    person = Installed(programs, tmp_path / "here", tmp_path / "home")
    assert "accuracy" in person.podline("run", "sample", "--root", "root", "--epochs", "2")
    [run] = [path.name for path in (person.here / "root" / "runs").glob("sample-*")]
    person.podline("models", "promote", run, "--root", "root")
