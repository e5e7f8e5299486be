"""docs/files.md has a line for every file of the product: the first line of its docstring.

After a file was added or renamed: ``RENEW_SNAPSHOTS=1 pytest tests/test_files_page.py`` writes the page.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parent.parent
PAGE = PROJECT / "docs" / "files.md"
TOP = ("deployments", "flows", "tasks", "beam_jobs", "podline")
ABOUT = """# Every file, in one line

The first line of each file's docstring, from what a person runs down to what all of it stands on. \
[The house](design.md#the-house) says what the folders are, and which may import which.
"""


def folders() -> Iterator[Path]:
    """Every folder with Python files, in the order in which the page shows them; links lead to the top ones."""
    for top in TOP:
        yield PROJECT / top
        yield from sorted(folder for folder in (PROJECT / top).rglob("*") if folder.is_dir() and is_ours(folder))


def is_ours(folder: Path) -> bool:
    """Whether it is a package that lies where its name says."""
    return folder.resolve() == folder and bool(list(folder.glob("*.py")))


def line_of(file: Path) -> str:
    """A file and what it says of itself."""
    told = ast.get_docstring(ast.parse(file.read_text()))
    assert told, f"{file} has no docstring"
    first = re.sub(r":\w+:`~?|``", "`", " ".join(told.split("\n\n")[0].split()))
    return f"- [{file.name}](../{file.relative_to(PROJECT)}): {first}"


def written() -> str:
    """The page as the files are now."""
    parts = [ABOUT]
    for folder in folders():
        lines = [line_of(file) for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
        parts.append("\n".join([f"## {folder.relative_to(PROJECT)}/\n", *lines]) + "\n")
    return "\n".join(parts)


def test_every_file_has_its_line() -> None:
    if os.environ.get("RENEW_SNAPSHOTS"):
        PAGE.write_text(written())
    assert PAGE.read_text() == written(), "a file or its docstring changed: RENEW_SNAPSHOTS=1 writes the page anew"
