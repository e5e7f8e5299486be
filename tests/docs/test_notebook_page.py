"""The code of the page on notebooks runs as it stands there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_dataset import publish_dataset

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "notebook.md"


def block_of(library: str) -> str:
    """The block of Python that begins with the import of a library."""
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
