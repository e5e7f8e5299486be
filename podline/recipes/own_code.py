"""Computes digests of code outside Podline on which a run, an evaluation or a data set depends.

The digest of a module covers its source and, recursively, its imports from the same package, folder or distribution. No
code is executed: import statements are parsed, and files are found as Python's import would find them. The digest is
computed from the syntax tree without docstrings, so a new comment, line break or docstring does not start a new
training. Data files and dynamic imports are not covered.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path
from typing import cast

from podline.base.errors import SettingsError
from podline.base.frozen import Json
from podline.recipes import datasets
from podline.recipes.datasets import DataSet
from podline.recipes.parts import AUGMENTATIONS, HOOKS, LOSSES, MODELS, OPTIMIZERS
from podline.recipes.settings import Recipe
from podline.recipes.task import KINDS
from podline.store import digests

_DIGITS = 16
_OURS = "podline"
_INSTALLED = ("site-packages", "dist-packages")
# Calls whose arguments are part of a run's name already, through the recipe or data set.
_DECLARATIONS = ("Recipe", "DataSet")


def with_code(recipe: Recipe) -> Recipe:
    """Return the recipe with the digests of the installed code that the training uses; existing digests stay.

    Raises:
        SettingsError: a model, optimizer or other part of the recipe is not installed.
    """
    found = {} if recipe.code else _of_parts(recipe)
    return recipe.changed(code=found) if found else recipe


def require_unchanged(recipe: Recipe) -> None:
    """Check that the installed code equals the code whose digests are in the recipe of a run.

    Raises:
        SettingsError: the code has changed, or is not installed.
    """
    for part, found in _of_parts(recipe).items():
        if (named := recipe.code.get(part)) != found:
            raise SettingsError(
                f"{part}: its code has digest {found} vs {named or 'none'} in the run's name: the code has changed, or "
                f"differs on this machine; to begin a new run, give the recipe's name instead of a run or spec"
            )


def of_dataset(dataset: DataSet) -> str:
    """Return the digest of the code that reads a data set; empty for Podline's own data sets."""
    base, registry = dataset.base, datasets.DATASETS
    modules = [place.partition(":")[0] for place in (dataset.open, dataset.settings)]
    installed = base in registry.names() and base not in registry.shipped
    return of_modules(modules, registry.point(base).dist if installed else None)


def of_point(point: EntryPoint) -> str:
    """Return the digest of the code behind an entry point."""
    return of_modules([point.module], point.dist)


def of_modules(names: Iterable[str], distribution: Distribution | None = None) -> str:
    """Return the digest of modules and of imports from the same packages; empty if all are Podline's or missing."""
    waiting = [name for name in names if not _is_ours(name)]
    own = _Own(waiting, distribution)
    found: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        if name in found or name not in own:
            continue
        spec = _spec_of(name)
        if spec is None:  # a name inside a module
            continue
        found[name], imported = _read(spec)
        waiting += [*imported, *filter(None, [name.rpartition(".")[0]])]
    return digests.of_json(sorted(found.items()))[:_DIGITS] if found else ""


def _of_parts(recipe: Recipe) -> dict[str, str]:
    """Return name → digest of the models, losses, hooks and other parts of a recipe from installed packages."""
    phases = [phase for _, phase in recipe.by_phase]
    optimizers = {phase.optimizer.kind for phase in phases}
    used = [
        (KINDS, {recipe.kind} - KINDS.shipped.keys()),
        (MODELS, {recipe.model.kind} - MODELS.shipped.keys()),
        (OPTIMIZERS, optimizers - OPTIMIZERS.shipped.keys()),
        (LOSSES, {phase.loss.kind for phase in phases} - LOSSES.shipped.keys()),
        (AUGMENTATIONS, {name for phase in phases for name in phase.image_augmentation.also}),
        (HOOKS, recipe.hooks),
    ]
    return {
        f"{registry.what} {name}": of_point(registry.point(name)) for registry, names in used for name in sorted(names)
    }


class _Own:
    """The set of modules in the same package, folder or distribution as the modules ``names``."""

    def __init__(self, names: Iterable[str], distribution: Distribution | None) -> None:
        self._belongs = {name.partition(".")[0]: True for name in names}
        self._folders = {folder for top in self._belongs if (folder := _folder(top)) and folder.name not in _INSTALLED}
        files = (distribution.files if distribution else None) or ()
        self._installed = {Path(str(file.locate())).resolve() for file in files}

    def __contains__(self, name: str) -> bool:
        top = name.partition(".")[0]
        if top not in self._belongs:
            self._belongs[top] = not _is_ours(top) and top not in sys.stdlib_module_names and self._is_beside(top)
        return self._belongs[top]

    def _is_beside(self, top: str) -> bool:
        spec = _spec_of(top)
        if spec is None or spec.origin is None:
            return False
        return _folder(top) in self._folders or Path(spec.origin).resolve() in self._installed


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == _OURS


def _folder(top: str) -> Path | None:
    """Return the folder that contains a top-level module or package; None if it cannot be found."""
    spec = _spec_of(top)
    if spec is None:
        return None
    places = spec.submodule_search_locations
    place = next(iter(places), None) if places is not None else spec.origin
    return Path(place).resolve().parent if place else None


def _spec_of(name: str) -> ModuleSpec | None:
    """Return the spec of a module; parent packages are not imported, unlike with importlib.util.find_spec."""
    top, *inner = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(f"{spec.name}.{part}", list(spec.submodule_search_locations))
    return spec


def _read(spec: ModuleSpec) -> tuple[str, list[str]]:
    """Return the digest of a module, and the names of the modules that it may import."""
    get_data = getattr(spec.loader, "get_data", None)
    if not spec.has_location or get_data is None:  # a folder without __init__.py
        return "", []
    data: bytes = get_data(str(spec.origin))
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        if str(spec.origin).endswith(".py"):
            tree = ast.parse(data)
            package = spec.name if spec.submodule_search_locations is not None else spec.parent or ""
            return digests.of_json(_outline(tree)), list(_imports(tree, package))
    return digests.of_bytes(data), []  # compiled


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):  # above the topmost package
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


def _outline(node: object) -> Json:
    """Return a syntax tree as JSON, without empty fields, because later versions of Python add fields."""
    if isinstance(node, list):
        return [_outline(each) for each in cast("list[object]", node)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.Module):
        fields["body"] = [each for each in node.body if not _declares(each)]
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
        fields["body"] = fields["body"][1:]
    kept = [[name, _outline(value)] for name, value in fields.items() if value is not None and value != []]
    return [type(node).__name__, kept]


def _declares(statement: ast.stmt) -> bool:
    """Return whether a statement has the form ``NAME = Recipe(…)`` or ``NAME = DataSet(…)``."""
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    called = value.func if isinstance(value, ast.Call) else None
    return (called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")) in _DECLARATIONS
