"""The private parts of other libraries that CONTRIBUTING.md lists are there, and the code uses no others.

A new version of a library fails here first: take the public way that it may have now, or adapt the module.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROJECT = Path(__file__).parents[1]
CODE = ("podline", "flows", "tasks", "beam_jobs", "deployments", "benchmarks")
# Documented, or of Python: a named tuple's methods, and the end of a process without clean-up.
PUBLIC = frozenset({"_replace", "_asdict", "_make", "_fields", "_field_defaults", "_exit", "_value_"})
# Modules without a promise of compatibility.
OUT_OF_BOUNDS = re.compile(r"\.src\b|\._|^tensorflow\.|^prefect\.server\b")


class Part(NamedTuple):
    """A private part: its library, its dotted name or ``module: text``, and the files that may use it."""

    library: str
    name: str
    places: tuple[str, ...]

    @property
    def word(self) -> str:
        """The word by which the code uses it."""
        return self.name.rpartition(": ")[2] if ": " in self.name else self.name.rpartition(".")[2]


def listed() -> Iterator[Part]:
    """The rows of CONTRIBUTING.md's table."""
    section = (PROJECT / "CONTRIBUTING.md").read_text().partition("## Private parts")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| ([a-z-]+) \| (`.*)", section, re.MULTILINE):
        parts, places, _ = (re.findall(r"`([^`]+)`", cell) for cell in row[1].split(" | "))
        yield from (Part(row[0], part, tuple(places)) for part in parts)


def modules(place: str) -> list[Path]:
    """The modules in a folder or file of the project."""
    path = PROJECT / place
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def users(part: Part) -> list[str]:
    """The modules that use a part."""
    found = (module for place in part.places for module in modules(place))
    word = part.word.removeprefix("self.")
    return [f"{module.relative_to(PROJECT)}" for module in found if re.search(rf"\b{word}\b", module.read_text())]


@functools.cache
def _layer_and_model() -> tuple[Any, Any]:
    import keras  # noqa: PLC0415

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    return model, model.layers[0]


def _uvicorn_server() -> Any:
    import uvicorn  # noqa: PLC0415

    return uvicorn.Server(uvicorn.Config("none:none"))


# What is set for instances alone, or has another public name.
INSTANCES: dict[str, Callable[[], Any]] = {
    "keras.Sequential": lambda: _layer_and_model()[0],
    "keras.Layer": lambda: _layer_and_model()[1],
    "keras.KerasTensor": lambda: _layer_and_model()[0].outputs[0],
    "keras.Variable": lambda: _layer_and_model()[1].kernel,
    "fastapi.FastAPI": lambda: importlib.import_module("fastapi").FastAPI(),
    "uvicorn.Server": _uvicorn_server,
}


def found(name: str) -> Any:
    """What a dotted name leads to.

    Raises:
        AttributeError: it leads nowhere.
    """
    start = next((each for each in INSTANCES if name.startswith(f"{each}.")), "")
    value, words = (INSTANCES[start](), name.removeprefix(f"{start}.")) if start else _imported(name)
    return functools.reduce(getattr, words.split("."), value) if words else value


def _imported(name: str) -> tuple[Any, str]:
    module, words = name, ""
    while not _is_module(module):
        module, _, word = module.rpartition(".")
        words = f"{word}.{words}".rstrip(".")
    return importlib.import_module(module), words


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def holds(name: str, text: str) -> bool:
    """Whether a module, found without importing it if possible, has a text in its source."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None and text in Path(spec.origin).read_text()


@pytest.mark.parametrize("part", list(listed()), ids=lambda part: f"{part.library}-{part.word}")
def test_a_private_part_is_there(part: Part) -> None:
    used_by = users(part)
    assert used_by, f"{part.name} is used nowhere in {', '.join(part.places)}: correct CONTRIBUTING.md's table"
    gone = f"{part.library} {importlib.metadata.version(part.library)} has no {part.name}; {', '.join(used_by)} uses it"
    module, colon, text = part.name.partition(": ")
    try:
        there = holds(module, text) if colon else [found(part.name)]
    except (AttributeError, ImportError) as error:
        pytest.fail(f"{gone} ({error})")
    assert there, gone


def test_a_part_that_is_gone_is_an_error() -> None:
    for name in ("keras.Sequential._functionals", "keras.src.no.such", "google.cloud.storage.Client._https"):
        with pytest.raises(AttributeError):
            found(name)
    assert not holds("prefect.engine", "PREFECT__NO_SUCH")


def test_keras_s_graph_is_read_and_run_with_other_layers() -> None:
    """What `podline.models` reads of each call, and how it calls the graph."""
    import keras  # noqa: PLC0415

    graph, dense = found("keras.Sequential._functional"), found("keras.Layer._inbound_nodes")
    [node] = [node for at_depth in graph._nodes_by_depth.values() for node in at_depth if not node.is_input]
    assert node is dense[0]
    assert [tuple(each.shape) for each in (*node.input_tensors, *node.output_tensors)] == [(None, 3), (None, 2)]
    assert keras.tree.flatten([node.arguments.args, node.arguments.kwargs]) == node.input_tensors
    other = keras.layers.Dense(5)
    assert tuple(graph._run_through_graph(keras.Input((3,)), lambda _: other).shape) == (None, 5)


def private(module: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each private part of another library that a module uses, by its last word."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and OUT_OF_BOUNDS.search(node.module or ""):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.Attribute) and re.fullmatch(r"_(?!_).*", node.attr):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr", "hasattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and re.fullmatch(r"_(?!_).*", str(name.value)):
                yield node.lineno, str(name.value)


def defined(module: Path) -> Iterator[str]:
    """The private names that a module gives to what is its own."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [node.attr] if getattr(node.value, "id", "") in ("self", "cls") else []


def test_no_other_private_part_is_used() -> None:
    every = [module for folder in CODE for module in modules(folder)]
    known = PUBLIC | {part.word for part in listed()} | {name for module in every for name in defined(module)}
    used = [(module, line, name) for module in every for line, name in private(module) if name not in known]
    others = [f"{module.relative_to(PROJECT)}:{line}: {name}" for module, line, name in used]
    assert not others, "take a public way, or list it in CONTRIBUTING.md"


def test_a_private_part_is_recognised(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    lines = ("from keras.src.utils import naming", "model._network.x", "getattr(model, '_layers')", "self.__dict__")
    module.write_text("\n".join(lines))
    assert set(private(module)) == {(1, "naming"), (2, "_network"), (3, "_layers")}
