from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from support.extending import install

from podline.cli import cli
from podline.errors import SettingsError
from podline.settings import HEARTBEAT


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
    installed = install(
        tmp_path / "installed", modules, toml[toml.index("[project.entry-points") : toml.index("[tool")]
    )
    environment = os.environ | {"PYTHONPATH": str(installed)}
    light = "import sys, new_shapes; sys.exit('tensorflow' in sys.modules)"
    for command in (
        ["-c", light],
        ["-m", "unittest", "test_new_shapes"],
        ["-m", "podline.cli", "models", "describe", "new-shapes"],
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_nothing_is_left_to_fill_in_and_the_files_name_the_project(tmp_path: Path) -> None:
    project = tmp_path / "new-shapes"
    init(project)
    files = {path.name: path.read_text() for path in project.iterdir()}
    assert "/podline-root/" in files.pop(".gitignore")
    assert set(files) == {
        "Makefile",
        "README.md",
        "new_shapes.py",
        "prefect.yaml",
        "pyproject.toml",
        "test_new_shapes.py",
    }
    assert not [
        name for name, text in files.items() if "{{" in text or "new-shapes" not in text + name.replace("_", "-")
    ]
    assert sys.executable in files["Makefile"]
    for deployment in yaml.safe_load(files["prefect.yaml"])["deployments"]:
        assert deployment["parameters"]["parameters"]["recipe"] == "new-shapes"
        assert deployment["work_pool"]["job_variables"] == {"env": HEARTBEAT}


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(SettingsError, match="is not empty"):
        init(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("sample", "recipe 'sample' already"), ("resnet", "model 'resnet'"), ("json", "of Python"), ("Big", "small")],
)
def test_a_name_that_cannot_be_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        init(tmp_path / name)
    assert not (tmp_path / name).exists()
