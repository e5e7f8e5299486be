"""One name for one meaning: no two public classes of the product share a name without a reason."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PRODUCT = ("podline", "tasks", "beam_jobs", "flows", "deployments")
# A name that two classes share, and why.
REASONS: dict[str, str] = {}


def test_classes_of_one_name_have_a_reason() -> None:
    classes = defaultdict[str, list[str]](list)
    for file in (file for top in PRODUCT for file in (PROJECT / top).rglob("*.py") if file.resolve() == file):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(str(file.relative_to(PROJECT)))
    shared = {name: files for name, files in classes.items() if len(files) > 1}
    assert {name: files for name, files in shared.items() if name not in REASONS} == {}
    assert REASONS.keys() <= shared.keys()
