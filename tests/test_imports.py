"""What may be imported without TensorFlow, Prefect and Beam: an interpreter is started and asked what it has loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import podline.stages.tools  # noqa: F401 (it registers its stages)
from podline.cli import SECTIONS
from podline.stages.table import STAGES

PROJECT = Path(__file__).parent.parent
HEAVY = ("tensorflow", "keras", "prefect", "apache_beam", "pandas", "matplotlib", "grpc", "google.auth")

# All of the TPU's but what speaks to Google; tasks.embedded starts a server, which Prefect finds by its environment.
LIGHT = (
    "data documents stages store.folder cli commands ledger.inventory settings recipes notebook "
    "tpu.gate tpu.lock tpu.notices tpu.patrol tpu.tensorflow_errors tpu.watch report.nights_page tasks.embedded"
)

# They draw, or test how pictures look, and commands import them late.
DRAWING = ("podline.data.check", "podline.data.versions.changed_data")


def modules_of(package: str) -> list[str]:
    """A package and every module below it, by name."""
    top = PROJECT / package.replace(".", "/")
    if top.with_suffix(".py").is_file():
        return [package]
    parts = (path.relative_to(PROJECT).with_suffix("").parts for path in sorted(top.rglob("*.py")))
    names = (".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts)
    return [name for name in names if name not in DRAWING]


def loaded_by(modules: list[str]) -> set[str]:
    """Which heavy packages an interpreter has loaded after importing some modules."""
    code = f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
    code += f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("packages", "allowed"),
    [
        (LIGHT, ""),
        ("report.report", "matplotlib pandas"),
        ("beam_jobs", "apache_beam grpc google.auth pandas matplotlib"),
        ("tasks flows deployments", "prefect pandas grpc google.auth"),
    ],
)
def test_a_layer_loads_nothing_heavier_than_it_may(packages: str, allowed: str) -> None:
    modules = [module for package in packages.split() for module in modules_of(f"podline.{package}")]
    assert len(modules) >= len(packages.split())
    assert loaded_by(modules) <= set(allowed.split())


def test_every_stage_and_command_is_where_its_entry_point_says() -> None:
    entry_points = [f"podline.commands.{entry.at}" for section in SECTIONS.values() for entry in section.values()]
    stages = [stage for name, stage in STAGES.items() if name != "act"]
    entry_points += [entry_point for stage in stages for entry_point in (stage.run_at, stage.find_at)]
    for entry_point in entry_points:
        module, _, name = entry_point.partition(":")
        assert name in defined_in(PROJECT / f"{module.replace('.', '/')}.py"), f"{module} defines no {name}"


def defined_in(file: Path) -> set[str]:
    """What a module defines at its top: functions, and names that it gives to values."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_no_files_import_each_other_in_a_circle() -> None:
    """Not even for types alone. Ruff and import-linter look at packages, not files."""
    graph = grimp.build_graph("podline", cache_dir=None)
    arrows = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(arrows) > 300
    TopologicalSorter(arrows).prepare()  # which raises CycleError, with the circle
