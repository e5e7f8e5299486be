"""The tables of the docs that are made from the code: a module for each page, whose ``tables()`` gives them."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def attributes_of(model: type) -> dict[str, str]:
    """What a class says of its attributes, and its bases of theirs: the section of that name in the docstrings."""
    described: dict[str, str] = {}
    for base in reversed(model.__mro__):
        _, _, section = inspect.cleandoc(base.__dict__.get("__doc__") or "").partition("Attributes:\n")
        section = textwrap.dedent(section.partition("\n\n")[0])
        for part in re.split(r"\n(?=\S)", section):
            name, _, text = part.partition(": ")
            described |= {each.strip(): " ".join(text.split()) for each in name.split(",") if text}
    return described


def constants_of(module: object) -> dict[str, str]:
    """The docstrings below a module's constants, by name."""
    body = ast.parse(inspect.getsource(module)).body  # type: ignore[arg-type]
    return {
        each.targets[0].id: " ".join(after.value.value.split())
        for each, after in itertools.pairwise(body)
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
    }


def plain(text: str) -> str:
    """A docstring's text as Markdown in a cell of a table."""
    text = re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", text).replace("``", "`").replace("|", "\\|")
    return re.sub(r"docs/([a-z-]+)/([a-z-]+)(\.md[#a-z-]*)", r"[\2](../\1/\2\3)", text)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    head = list(head)
    lines = (f"| {' | '.join(plain(cell) for cell in row)} |" for row in (head, *rows))
    first, *others = (line.replace("|  |", "| |") for line in lines)
    return "\n".join([first, "|" + "---|" * len(head), *others])
