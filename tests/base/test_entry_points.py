"""What the extras of the installed Podline need, and the command that installs it."""

from __future__ import annotations

import importlib.util
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from podline.base.entry_points import install_command, require_extra
from podline.base.errors import SettingsError

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("pip", [True, False])
def test_a_missing_extra_is_installed_by_the_names_of_its_packages(extra: str, pip: bool, monkeypatch) -> None:
    require_extra("cpu", "asked for")  # it is installed
    monkeypatch.setattr(sys, "executable", "/a b/bin/python")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if pip else None)
    words = shlex.split(install_command(extra))
    python = "/a b/bin/python"
    start = [python, "-m", "pip", "install"] if pip else ["uv", "pip", "install", "--python", python]
    assert words[: len(start)] == start
    assert {*map(Requirement, words[len(start) :])} == {*map(Requirement, EXTRAS[extra])}
    monkeypatch.setattr("importlib.metadata.distributions", lambda **_: [])
    with pytest.raises(
        SettingsError, match=rf"asked for needs .*not installed: {Requirement(EXTRAS[extra][0]).name}.* install "
    ):
        require_extra(extra, "asked for")
