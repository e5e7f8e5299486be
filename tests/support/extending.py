"""The code that docs/how-to shows, and packages that are installed with it, for tests that run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = ("--root", "root")
PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def code_of(heading: str, language: str, number: int = 0) -> str:
    """A piece of code in a language below a heading of the pages (``## A recipe``), counted from 0."""
    pages = (page.read_text() for page in PAGES.glob("*.md"))
    (below,) = (page.split(f"\n{heading}\n")[1] for page in pages if f"\n{heading}\n" in page)
    return re.findall(rf"```{language}\n(.*?)```", below, re.DOTALL)[number]


def install(folder: Path, modules: Mapping[str, str], toml: str) -> Path:
    """Write an installed package: its modules (name → source), and the entry points of its pyproject.toml."""
    about = folder / f"{next(iter(modules))}-1.0.dist-info"
    about.mkdir(parents=True)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {next(iter(modules))}\nVersion: 1.0\n")
    written = re.sub(r'\[project\.entry-points\."([\w.]+)"\]', r"[\1]", toml)
    (about / "entry_points.txt").write_text(written.replace('"', ""))
    return folder


def answer(folder: Path, packages: Path | None, *words: str, code: int = 0, root: tuple[str, ...] = ROOT) -> Any:
    """The document that a command prints, run in a folder by a process that finds these packages."""
    done = subprocess.run(
        [sys.executable, "-m", "podline.cli", *words, *root, "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(packages or "")},
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)
