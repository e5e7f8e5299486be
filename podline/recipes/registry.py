"""Finds recipes by name or file, and changes some of their values.

Recipes come from Podline, from installed packages (an entry point ``podline.recipes`` for each
:class:`~podline.recipes.settings.Recipe`), and from the Python files in the setting ``recipes``. Other files are given
by path. docs/how-to/recipe.md has an example of each.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.base.frozen import Json, is_object, problem_in
from podline.recipes import datasets, shipped
from podline.recipes.changes import with_changes
from podline.recipes.parts import LOSSES, MODELS, OPTIMIZERS, Registry
from podline.recipes.settings import FewSettings, FitSettings, Recipe
from podline.recipes.task import KINDS, TaskSettings
from podline.settings.machine import load, nearest

ENTRY_POINTS = "podline.recipes"
FILE_SUFFIX = ".py"
_LONGEST_NAME = 60
# Values that belong together: if the user gives one, the others of the set are not changed either.
_TOGETHER = ({"duration"}, {"trainable_layers", "phases"})
# Settings of a kind's own network that must not change, else published weights do not fit.
_OWN_NETWORK = {"task", "task.model", "task.model.trunk", "task.model.width"}
# Letters that Unicode does not decompose into ASCII, or whose decomposition would change the sound.
_IN_ASCII = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "æ": "ae", "œ": "oe", "ø": "oe", "ł": "l", "đ": "d", "ð": "d", "þ": "th"}
)
_ARCHIVE = re.compile(r"(.+?)\.(?:tar|tgz|tar\.gz|zip)", re.IGNORECASE)
_TABLE = re.compile(r"\.(?:csv|tsv|json|jsonl|ndjson|parquet)(?:\.gz)?$", re.IGNORECASE)
RECIPES: Registry[Recipe] = Registry("recipe", ENTRY_POINTS, shipped.RECIPES, Recipe)


def names() -> tuple[str, ...]:
    """Return the names of all recipes: of Podline, of installed packages, and of files in the setting ``recipes``.

    Raises:
        SettingsError: two recipes have the same name, or a file has no recipe.
    """
    return tuple(_sources())


def has(name: str) -> bool:
    """Return whether a recipe has this name: one of :func:`names`, or such as ``images.flowers`` for users' data."""
    sources = _sources()
    return name in sources or _base(name, sources) is not None


def get(name: str) -> Recipe:
    """Return the recipe with a name, or in a file.

    Args:
        name: one of :func:`names`; such a name with a dot and the name of the user's own data, for example
            ``images.flowers``; or the path of a Python file, which ends in ``.py``.

    Raises:
        SettingsError: the recipe or its data set does not exist, or a setting is unknown.
    """
    if name in RECIPES.shipped:  # independent of other recipes, even of unreadable ones
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
    """Return a recipe for the user's own data; a dot and ``own`` are added to the names of recipe and data set.

    Raises:
        SettingsError: the name is invalid, or the data set already has a name of the user or allows none.
    """
    dataset = datasets.find(recipe.dataset)
    if not dataset.several or dataset.base != dataset.name:
        raise SettingsError(
            f"got the name {own!r} for {recipe.dataset}, the data set of the recipe {recipe.name}: only your own data "
            "can have a name, and only one; leave the name out"
        )
    if not datasets.can_be_own(own):
        raise SettingsError(
            f"got the name {own!r}, expected small letters, digits, - and _, and no run's name, as it names a folder"
        )
    return recipe.changed(name=recipe.name + datasets.OWN + own, dataset=recipe.dataset + datasets.OWN + own)


def for_data(recipe: Recipe, own: str | None, source: str) -> Recipe:
    """Return a recipe for the data of a source.

    Args:
        recipe: any recipe; a recipe of Podline for users' own data gets a name.
        own: the name of the user's data; by default the name of the source's folder or archive.
        source: the path of the data.

    Raises:
        SettingsError: see :func:`named`; or the folder's name cannot be written in ASCII.
    """
    if own:
        return named(recipe, own)
    is_own = recipe.name == recipe.dataset and recipe.name in RECIPES.shipped
    if not source or not is_own or not datasets.find(recipe.dataset).several:
        return recipe
    folder = _folder_of(source)
    found = _in_ascii(folder)
    if found == recipe.name:
        return recipe
    if not datasets.can_be_own(found):
        raise SettingsError(
            f"the data set needs a name of ASCII letters and digits, but the source's folder is {folder!r}: "
            f"give a name (--name NAME, or the recipe {recipe.name}.NAME)"
        )
    return named(recipe, found)


def _folder_of(source: str) -> str:
    """Return the name of a source folder, of an archive without its extension, or of the folder around a table."""
    if "://" not in source:
        source = os.path.normpath(Path(source).expanduser().absolute())  # "." and "flowers.csv" are in a named folder
    place = PurePosixPath(source)
    if not source.endswith("/") and not Path(source).is_dir():
        if archive := _ARCHIVE.fullmatch(place.name):
            return archive[1]
        if _TABLE.search(place.name) or Path(source).is_file():
            return place.parent.name
    return place.name


def _in_ascii(name: str) -> str:
    """Convert a folder's name to ASCII for a data set's name; empty if a letter or digit has no ASCII form."""
    composed = unicodedata.normalize("NFC", name).casefold()
    plain = unicodedata.normalize("NFKD", composed.translate(_IN_ASCII))
    if any(letter.isalnum() and not letter.isascii() for letter in plain):
        return ""
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter)).lower()
    return re.sub(r"[^a-z0-9_]+", "-", letters).strip("-_")[:_LONGEST_NAME].rstrip("-_")


def _base(name: str, sources: Mapping[str, Callable[[], Recipe]]) -> Recipe | None:
    """Return the recipe for users' own data whose name is before the dot in ``name``, or None."""
    base, _, own = name.partition(datasets.OWN)
    if not datasets.can_be_own(own) or base not in sources:
        return None
    recipe = _of_known_parts(sources[base]())
    return recipe if datasets.find(recipe.dataset).several else None


def _sources() -> dict[str, Callable[[], Recipe]]:
    """Return name → a function that loads the recipe; an installed package is imported by the call."""
    found = {name: functools.partial(RECIPES.load, name) for name in RECIPES.names()}
    for file in load().recipes:
        recipe = _of_file(Path(file))
        _require_new(recipe.name, found, file)
        found[recipe.name] = functools.partial(_of_file, Path(file))
    return found


def _require_new(name: str, found: Collection[str], source: str) -> None:
    if name in found:
        raise SettingsError(f"{source}: the recipe is named {name!r}, like another recipe; choose another name")


def _of_file(file: Path) -> Recipe:
    """Return the recipe ``RECIPE`` of a Python file.

    Raises:
        SettingsError: the file does not exist, raises an error, or has no recipe; or the recipe has the name of a
            recipe of Podline.
    """
    file = file.expanduser().absolute()
    try:
        changed = file.stat().st_mtime_ns
    except OSError as error:
        raise SettingsError(f"recipe file {file} cannot be read: {error.strerror}") from error
    recipe = getattr(_module_of(file, changed), "RECIPE", None)
    if not isinstance(recipe, Recipe):
        found = "no RECIPE" if recipe is None else f"RECIPE of type {type(recipe).__name__}"
        raise SettingsError(f"recipe file {file} has {found}; write RECIPE = Recipe(name=…, dataset=…)")
    _require_new(recipe.name, RECIPES.shipped, f"recipe file {file}")
    return recipe


@functools.cache
def _module_of(file: Path, _changed: int) -> ModuleType:
    """Import a file as a module; the cache runs the file again only after a change."""
    spec = importlib.util.spec_from_file_location(f"podline_recipe_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise SettingsError(f"recipe file {file} is not a Python file; give one whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    with entry_points.explained(f"recipe file {file}"):
        spec.loader.exec_module(module)
    return module


def override(recipe: Recipe, changes: Mapping[str, Json]) -> Recipe:
    """Return a recipe with some values changed.

    Args:
        recipe: the original recipe.
        changes: dotted path → value, for example ``{"schedule.learning_rate": 0.1, "duration.steps": 500}``. A
            duration has either steps or epochs; the new unit replaces the old one.

    Raises:
        SettingsError: a path is unknown, or a value is invalid.
    """
    # A recipe with other values gives another run, which uses the present code.
    document = recipe.model_dump(exclude={"code"} if changes else None)
    paths = dict(value_paths(Recipe, type(recipe.task)))
    for path, value in changes.items():
        if path not in paths and not paths.get(path.rpartition(".")[0]):
            raise SettingsError(f"a recipe has no {path!r}; {nearest(path, paths)}")
        tables = [below for below in paths if below.startswith(f"{path}.")]
        if tables and value is not None and not isinstance(value, Mapping | BaseModel):
            raise SettingsError(
                f"recipe {recipe.name}: {path} = {value!r}: {path} has several settings; set one of them, for example "
                f"{tables[0]}={value}"
            )
    try:
        document = with_changes(document, changes)
    except ValueError as error:
        raise SettingsError(f"recipe {recipe.name}: {error}") from None
    if recipe.fit and not any(path.partition(".")[0] == "fit" for path in changes):
        document["fit"] = _without_given(recipe.fit, changes)
    if not any(path.partition(".")[0] == "few" for path in changes):
        document["few"] = [*_few_without_given(recipe.few, changes)]
    try:
        changed = Recipe.model_validate(document)
    except ValidationError as error:
        problem = problem_in(error)
        where = ".".join(map(str, problem.loc))
        if where and not is_object(problem.input):
            where += f" = {problem.input!r}"
        # An error about the whole recipe concerns several values, which its message names.
        raise SettingsError(": ".join(filter(None, (f"recipe {recipe.name}", where, problem.msg)))) from None
    datasets.settings_of(changed.dataset, changed.conversion)
    # The recipe of a run stays readable if its package is missing.
    if any(getattr(changed, name) != getattr(recipe, name) for name in ("model", "optimizer", "loss", "phases")):
        try:
            _require_parts(changed)
        except SettingsError as error:
            raise SettingsError(f"recipe {recipe.name}: {error}") from None
    return changed


def _without_given(fit: FitSettings, changes: Mapping[str, Json]) -> FitSettings:
    """Turn off the values of ``fit`` that the user has set in ``changes``."""
    batch, sections = "batch_size" in changes, {path.partition(".")[0] for path in changes}
    return FitSettings(
        epoch_steps=1 if batch else fit.epoch_steps,
        least_batch=1 if batch else fit.least_batch,
        rate=fit.rate and not changes.keys() & {"batch_size", "schedule", "schedule.learning_rate"},
        steps=0 if "duration" in sections else fit.steps,
        least_validation=0 if "early_stop" in sections or changes.get("validation_share") else fit.least_validation,
        evaluation_time=0 if "evaluate_every" in sections else fit.evaluation_time,
    )


def _few_without_given(few: Iterable[FewSettings], changes: Mapping[str, Json]) -> Iterator[FewSettings]:
    """Yield the settings for few images without the user's ``changes``; none if the user chose the network."""
    given = {path.partition(".")[0] for path in changes}
    if given & {"model", "init"} or changes.keys() & _OWN_NETWORK:
        return
    side = changes.get("conversion.side")
    apart = set(changes).union(*(pair for pair in _TOGETHER if given & pair))
    if "duration.steps" in changes:
        apart |= {"trainable_layers", "phases"}  # phases by shares need a length in epochs
    for each in few:
        left = _apart_from(apart, each.changes)
        if left and (not isinstance(side, int) or side >= each.side):
            yield each.changed(changes=left)


def _apart_from(given: Collection[str], values: Mapping[str, Json]) -> dict[str, Json]:
    """Return the values whose path is not in ``given`` and not above or below a path there; also within phases."""
    left = {
        path: value
        for path, value in values.items()
        if not any(f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.") for other in given)
    }
    phases: Any = left.pop("phases", ())
    later = [{**phase, "changes": kept} for phase in phases if (kept := _apart_from(given, phase["changes"]))]
    return left | ({"phases": later} if later else {})


def for_few_images(recipe: Recipe, images: int, side: int) -> FewSettings | None:
    """Return the recipe's settings for a number of training images with a median side in pixels, or None."""
    return next((each for each in recipe.few if images <= each.images and side >= each.side), None)


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


def value_paths(model: type[BaseModel], task: type[TaskSettings], prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Yield every dotted path of a recipe of a kind, and whether further names may follow the path.

    External code defines the further names, for example ``heads`` in ``model.options.heads``.
    """
    for name, field in model.model_fields.items():
        yield prefix + name, field.annotation == dict[str, Json]
        inner = _model_in(field.annotation)
        if inner is not None:
            yield from value_paths(task if inner is TaskSettings else inner, task, f"{prefix}{name}.")


def field_of(path: str) -> FieldInfo | None:
    """Return the field of a recipe at a dotted path, or None if external code or the kind of task defines it."""
    model: type[BaseModel] | None = Recipe
    field = None
    for name in path.split("."):
        field = model.model_fields.get(name) if model else None
        model = _model_in(field.annotation) if field else None
    return field


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the pydantic class in a field's annotation, with or without ``| None``; None if it has no such class."""
    choices = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return next((choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)), None)
