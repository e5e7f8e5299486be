"""Recipes by name or file, and with some of their values changed.

There are those that Podline ships, those of installed packages (the entry points ``podline.recipes``, each a
:class:`~podline.recipes.settings.Recipe`), and those of the Python files that the setting ``recipes`` names. A file
that no setting names is given by its path. docs/how-to/recipe.md has an example of each.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from podline import entry_points
from podline.errors import SettingsError
from podline.frozen import Json, is_object, problem_in
from podline.kinds import shipped
from podline.recipes import datasets
from podline.recipes.changes import with_changes
from podline.recipes.parts import LOSSES, MODELS, OPTIMIZERS, Registry
from podline.recipes.settings import FitSettings, Recipe
from podline.recipes.task import KINDS, TaskSettings
from podline.settings import load, nearest

ENTRY_POINTS = "podline.recipes"
FILE_SUFFIX = ".py"
_LONGEST_NAME = 60
RECIPES: Registry[Recipe] = Registry("recipe", ENTRY_POINTS, shipped.RECIPES, Recipe)


def names() -> tuple[str, ...]:
    """Return the names of all recipes: shipped, installed, and of the files that the setting ``recipes`` names.

    Raises:
        SettingsError: two have one name, or a file holds no recipe.
    """
    return tuple(_sources())


def has(name: str) -> bool:
    """Whether a name is a recipe's: one of :func:`names`, or such a one with one's own after a dot."""
    sources = _sources()
    return name in sources or _base(name, sources) is not None


def get(name: str) -> Recipe:
    """Return the recipe of a name, or in a file.

    Args:
        name: one of :func:`names`, of a recipe for data of one's own with their name after a dot, as images.flowers,
            or the path of a Python file, which ends in ``.py``.

    Raises:
        SettingsError: there is none, or not its data set, or a setting that this does not have.
    """
    if name in RECIPES.shipped:  # whatever else there is, and whether that can be read
        return RECIPES.load(name)
    if name.endswith(FILE_SUFFIX):
        return _of_known_parts(_of_file(Path(name)))
    sources = _sources()
    if name in sources:
        return _of_known_parts(sources[name]())
    base = _base(name, sources)
    if base is None:
        raise SettingsError(f"there is no recipe {name!r}; {nearest(name, sources)}")
    return named(base, name.partition(datasets.OWN)[2])


def named(recipe: Recipe, own: str) -> Recipe:
    """Return a recipe for one of several data sets: both have its name after a dot.

    Raises:
        SettingsError: the recipe's data set has its name already, is the only one of its kind, or the name cannot be.
    """
    dataset = datasets.find(recipe.dataset)
    if not dataset.several or dataset.base != dataset.name:
        raise SettingsError(
            f"the name {own!r} vs {recipe.dataset}, which the recipe {recipe.name} is for: only data of one's own are "
            "named, and once"
        )
    if not datasets.can_be_own(own):
        raise SettingsError(f"the name {own!r} vs small letters, digits, - and _, and no run's: it becomes a folder's")
    return recipe.changed(name=recipe.name + datasets.OWN + own, dataset=recipe.dataset + datasets.OWN + own)


def for_data(recipe: Recipe, own: str | None, source: str) -> Recipe:
    """Return a recipe for the data of a source.

    Args:
        recipe: any; a shipped one for data of one's own is named.
        own: its name; None or nothing is that of the folder that the data lie in.
        source: where they lie.

    Raises:
        SettingsError: see :func:`named`.
    """
    if own:
        return named(recipe, own)
    if recipe.name != recipe.dataset or recipe.name not in RECIPES.shipped or not datasets.find(recipe.dataset).several:
        return recipe
    found = _name_in(source)
    return named(recipe, found) if datasets.can_be_own(found) and found != recipe.name else recipe


def _name_in(source: str) -> str:
    """Return the name of a source's folder, as part of a data set's name; for a file, its folder's name."""
    place = PurePosixPath(source.rstrip("/"))
    folder = place.parent if place.suffix and not Path(source).is_dir() else place
    return re.sub(r"[^a-z0-9_]+", "-", folder.name.lower()).strip("-_")[:_LONGEST_NAME].rstrip("-_")


def _base(name: str, sources: Mapping[str, Callable[[], Recipe]]) -> Recipe | None:
    """Return the recipe before the dot of a name with the user's own name after it."""
    base, _, own = name.partition(datasets.OWN)
    if not datasets.can_be_own(own) or base not in sources:
        return None
    recipe = _of_known_parts(sources[base]())
    return recipe if datasets.find(recipe.dataset).several else None


def _sources() -> dict[str, Callable[[], Recipe]]:
    """Name → what loads the recipe: an installed one is imported when it is asked for."""
    found = {name: functools.partial(RECIPES.load, name) for name in (*RECIPES.shipped, *RECIPES.points())}
    for file in load().recipes:
        recipe = _of_file(Path(file))
        _require_new(recipe.name, found, file)
        found[recipe.name] = functools.partial(_of_file, Path(file))
    return found


def _require_new(name: str, found: Collection[str], source: str) -> None:
    if name in found:
        raise SettingsError(f"{source}: the recipe is named {name!r}, as another one; give it a name of its own")


def _of_file(file: Path) -> Recipe:
    """Return the recipe that a Python file holds as RECIPE.

    Raises:
        SettingsError: there is no such file, it cannot be run, it holds no recipe, or one with a shipped one's name.
    """
    file = file.expanduser().absolute()
    try:
        changed = file.stat().st_mtime_ns
    except OSError as error:
        raise SettingsError(f"recipe file {file} cannot be read: {error.strerror}") from error
    recipe = getattr(_module_of(file, changed), "RECIPE", None)
    if not isinstance(recipe, Recipe):
        held = "no RECIPE" if recipe is None else f"a {type(recipe).__name__}"
        raise SettingsError(f"recipe file {file} holds {held} vs a Recipe: write RECIPE = Recipe(name=…, dataset=…)")
    _require_new(recipe.name, RECIPES.shipped, f"recipe file {file}")
    return recipe


@functools.cache
def _module_of(file: Path, _changed: int) -> ModuleType:
    """Import a file as a module; run it once, and again after a change."""
    spec = importlib.util.spec_from_file_location(f"podline_recipe_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise SettingsError(f"recipe file {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SettingsError(f"recipe file {file}: {entry_points.reason(error)}") from error
    return module


def override(recipe: Recipe, changes: Mapping[str, Json]) -> Recipe:
    """Return a recipe with some values changed.

    Args:
        recipe: where to start from.
        changes: dotted path → value, as ``{"schedule.learning_rate": 0.1, "duration.steps": 500}``. A duration holds
            one of steps, epochs and examples: giving one takes the place of another.

    Raises:
        SettingsError: a path that recipes do not have, or a value that cannot be.
    """
    # Other values are another run, of the code as it is now.
    document = recipe.model_dump(exclude={"code"} if changes else None)
    paths = dict(_paths(Recipe, type(recipe.task)))
    for path, value in changes.items():
        if path not in paths and not paths.get(path.rpartition(".")[0]):
            raise SettingsError(f"a recipe has no {path!r}; {nearest(path, paths)}")
        tables = [below for below in paths if below.startswith(f"{path}.")]
        if tables and value is not None and not isinstance(value, Mapping | BaseModel):
            raise SettingsError(
                f"recipe {recipe.name}: {path} = {value!r}: it holds several values; name one, as {tables[0]}={value}"
            )
    document = with_changes(document, changes)
    if recipe.fit and not any(path.partition(".")[0] == "fit" for path in changes):
        document["fit"] = _without_given(recipe.fit, changes)
    try:
        changed = Recipe.model_validate(document)
    except ValidationError as error:
        problem = problem_in(error)
        where = ".".join(map(str, problem.loc))
        # What is wrong with the whole of a recipe is about several of its values, and the message names them.
        value = where or ", ".join(changes)
        if where and not is_object(problem.input):
            value = f"{where} = {problem.input!r}"
        raise SettingsError(f"recipe {recipe.name}: {value}: {problem.msg}") from None
    datasets.settings_of(changed.dataset, changed.conversion)
    # What a run was trained with stays readable when its package is gone.
    if any(getattr(changed, name) != getattr(recipe, name) for name in ("model", "optimizer", "loss", "phases")):
        try:
            _require_parts(changed)
        except SettingsError as error:
            raise SettingsError(f"recipe {recipe.name}: {error}") from None
    return changed


def _without_given(fit: FitSettings, changes: Mapping[str, Json]) -> FitSettings:
    """Remove from the values chosen by the number of images those that the user gave."""
    batch = "batch_size" in changes
    return FitSettings(
        epoch_steps=1 if batch else fit.epoch_steps,
        least_batch=1 if batch else fit.least_batch,
        rate=fit.rate and not changes.keys() & {"batch_size", "schedule", "schedule.learning_rate"},
        steps=0 if any(path.partition(".")[0] == "duration" for path in changes) else fit.steps,
    )


def _of_known_parts(recipe: Recipe) -> Recipe:
    try:
        datasets.find(recipe.dataset).settings_of(recipe.conversion)
        _require_parts(recipe)
    except SettingsError as error:
        raise SettingsError(f"recipe {recipe.name}: {error}") from None
    return recipe


def _require_parts(recipe: Recipe) -> None:
    KINDS.load(recipe.kind)
    MODELS.require(recipe.model)
    for _, phase in recipe.by_phase:
        OPTIMIZERS.require(phase.optimizer)
        LOSSES.require(phase.loss)


def _paths(model: type[BaseModel], task: type[TaskSettings], prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Yield every dotted path that a recipe of a kind has, and whether anything may be below it.

    Names below it are then given by somebody else's code, as in ``model.options.heads``.
    """
    for name, field in model.model_fields.items():
        yield prefix + name, field.annotation == dict[str, Json]
        inner = _model_in(field.annotation)
        if inner is not None:
            yield from _paths(task if inner is TaskSettings else inner, task, f"{prefix}{name}.")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field holds, optional or not."""
    choices = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return next((choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)), None)
