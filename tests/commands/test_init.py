"""A new project has its names, works as it is, and refuses names that are taken."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from support.extending import install

from podline.base.errors import SettingsError
from podline.cli import cli
from podline.settings.environment import HEARTBEAT


def init(folder: Path) -> str:
    found = CliRunner().invoke(cli, ["init", str(folder)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.mark.slow
def test_a_new_project_is_known_by_its_names_and_its_own_test_passes(tmp_path: Path) -> None:
    project = tmp_path / "new-shapes"
    assert "next: cd" in init(project)
    toml = (project / "pyproject.toml").read_text()
    modules = {path.stem: path.read_text() for path in project.glob("*.py")}
    entry_points = toml[toml.index("[project.entry-points") : toml.index("[tool")]
    installed = install(tmp_path / "installed", modules, entry_points)
    environment = os.environ | {"PYTHONPATH": str(installed)}
    light = "import sys, new_shapes; sys.exit('tensorflow' in sys.modules)"
    describe = ["-m", "podline.cli", "models", "describe", "new-shapes"]
    for command in (["-c", light], ["-m", "unittest", "test_new_shapes"], describe):
        subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, check=True)


def test_a_new_project_has_nothing_to_fill_in_and_its_files_name_it(tmp_path: Path) -> None:
    project = tmp_path / "new-shapes"
    init(project)
    files = {path.name: path.read_text() for path in project.iterdir()}
    assert "/podline-root/" in files.pop(".gitignore")
    for name, text in files.items():
        assert "{{" not in text
        assert "new-shapes" in text + name.replace("_", "-")
    assert sys.executable in files["Makefile"]
    assert runpy.run_path(str(project / "new_shapes.py"))["RECIPE"].name == "new-shapes"
    for deployment in yaml.safe_load(files["prefect.yaml"])["deployments"]:
        assert deployment["parameters"]["parameters"]["recipe"] == "new-shapes"
        assert deployment["work_pool"]["job_variables"] == {"env": HEARTBEAT}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sample", "recipe 'sample' exists already"),
        ("json", "of Python"),
        ("Big", "small"),
        (
            "google_cloud-storage",
            r"a package google-cloud-storage 3\.\S+ is already installed; give the folder another",
        ),
        ("cv2", r"a Python module 'cv2' exists already \(.*cv2"),  # of a distribution with another name
        ("google", "a Python module 'google' exists already"),  # a namespace package
    ],
)
def test_a_name_that_cannot_be_or_a_folder_that_is_not_empty_is_refused(tmp_path, name, reason):
    with pytest.raises(SettingsError, match=reason):
        init(tmp_path / name)
    assert not (tmp_path / name).exists()
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(SettingsError, match="is not empty"):
        init(tmp_path)


def test_names_on_the_path_are_taken_unless_the_project_itself_was_installed(tmp_path, monkeypatch):
    packages, own = tmp_path / "packages", tmp_path / "größer als" / "own-shapes"
    for name, facts in (
        ("own_shapes", {"url": own.as_uri(), "dir_info": {"editable": True}}),
        ("bought", {"url": "https://example.org/bought.whl"}),
    ):
        folder = packages / f"{name}-0.1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        (folder / "direct_url.json").write_text(json.dumps(facts))
    (packages / "loud.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(packages)
    for name in ("bought", "loud", "own_shapes"):
        with pytest.raises(SettingsError, match=rf"{name}.* already.*; give the folder another name"):
            init(tmp_path / name)
    # A namespace package, seen from the working folder, is the new folder itself.
    own.mkdir(parents=True)
    monkeypatch.syspath_prepend(own.parent)
    assert f"next: cd '{own}' && make run" in init(own)
    assert "make run" in init(own.parent / "fresh")


def test_each_target_runs_a_python_at_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, project, calls = tmp_path / 'o\'ne "$two" #ö' / "python", tmp_path / "a project", tmp_path / "calls"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "$@" >> \'{calls}\'\ncase "$*" in *unittest*) exit 7;; esac\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    init(project / "new-shapes")
    targets = re.findall(r"^([a-z]+): install", (project / "new-shapes" / "Makefile").read_text(), re.MULTILINE)
    for target in targets:
        done = subprocess.run(["make", target], cwd=project / "new-shapes", capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (target != "test"), done.stderr
    lines = calls.read_text().splitlines()
    assert lines == [
        "-m pip --version",
        "-m pip install --quiet --no-deps --no-build-isolation --editable .",
        "-P -m podline.cli run new-shapes --root podline-root",
        "-m unittest test_new_shapes",
        "-P -m podline.cli up --root podline-root --port 4200 --project .",
        "-P -m podline.cli deploy --project . --overwrite",
    ]
    # Podline has these commands and options.
    monkeypatch.chdir(project / "new-shapes")
    for _, _, words in (line.partition("-P -m podline.cli ") for line in lines):
        if words:
            name, *options = words.split()
            command = cli.get_command(click.Context(cli), name)
            assert command is not None, name
            command.make_context(name, options)
