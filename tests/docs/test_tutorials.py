"""The tutorials' commands are run in their order, and say what the pages show; the code of other pages runs as well."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from small_dataset import publish_dataset

PROJECT = Path(__file__).parents[2]
PAGES = PROJECT / "docs" / "tutorial"
RUN = re.compile(r"^run +(\S+)$", re.MULTILINE)


class Command(NamedTuple):
    line: str
    shown: list[str]


def commands(page: str) -> list[Command]:
    """The commands of a page, in its order; pieces of Python are written into the file that the page names."""
    found: list[Command] = []
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *shown = part.splitlines()
            found.append(Command(line.removeprefix(".venv/bin/"), shown))
    return [command for command in found if not command.line.startswith("make ")]


def kind_of(line: str) -> str:
    """A line of output without figures, hashes and times, nor the names of classes of 0.0 %."""
    line = re.sub(r"[\w-]+ 0\.0 %", "class 0.0 %", line)
    line = re.sub(r"\b[0-9a-f]{12}\b", "N", line)
    line = " ".join(re.sub(r"[\d,.:]*\d[\d,.:]*|−", "N", line).split())
    return re.sub(r"(N (h|min) )*N (h|min|s)\b", "T", line)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-run", "own-images", "nights"])
def test_whoever_follows_the_tutorial_sees_what_it_shows(name: str, tmp_path: Path) -> None:
    page = (PAGES / f"{name}.md").read_text()
    for file, code in re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)```", page, re.DOTALL):
        (tmp_path / file).write_text(code)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(PROJECT)}
    names: dict[str, str] = {}
    for line, shown in commands(page):
        for before, now in names.items():
            line = line.replace(before, now)  # noqa: PLW2901 (a run's name depends on the page's machine)
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        said = (done.stderr + done.stdout).replace(f"{tmp_path}", "…")
        expected = 3 if any(each.startswith("podline: error") for each in shown) else 0
        assert done.returncode == expected, f"{line}\n{said}"
        if runs := RUN.findall("\n".join(shown)):
            names |= dict(zip(runs, RUN.findall(said), strict=True))
        kinds = {kind_of(each) for each in said.splitlines()}
        missing = [each for each in shown if each != "…" and kind_of(each) not in kinds]
        assert not missing, f"{line}\n{said}"


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "notebook.md"


def block_of(library: str) -> str:
    [found] = re.findall(rf"```python\n(import {library}\n.*?)```", PAGE.read_text(), re.DOTALL)
    return found


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_another_library_trains_on_the_examples(library: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed, and no dependency of Podline: uv pip install {library}")
    publish_dataset(tmp_path / "podline-root", train=192)
    line = [sys.executable, "-W", "error", "-c", block_of(library)]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


MODEL = Path(__file__).parents[2] / "docs" / "models" / "mice.keras"
OPEN = """
import sys, keras, numpy
model = keras.saving.load_model(sys.argv[1])
*_, heatmaps = model.predict(numpy.zeros((1, 192, 192, 3), numpy.uint8), verbose=0).values()
assert heatmaps.shape == (1, 24, 24, 4) and "podline" not in sys.modules
"""


@pytest.mark.slow
def test_the_mouse_model_opens_without_podline() -> None:
    done = subprocess.run([sys.executable, "-c", OPEN, MODEL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
