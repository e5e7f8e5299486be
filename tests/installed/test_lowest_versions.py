"""The lowest versions of direct dependencies that pyproject.toml declares: the sample runs with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from installed import PROJECT, Installed, build_wheel, install


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
