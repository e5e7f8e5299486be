"""Recipes by name, and with some of their values changed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from podline.errors import SettingsError
from podline.recipes.settings import Part, Recipe
from podline.settings import nearest

# A recipe's module has its name and holds it as RECIPE; its docstring says the command and the result to expect.
_NAMES = ("cifar10", "cifar100", "mnist", "sample", "coco_pose")


def names() -> tuple[str, ...]:
    """All recipes' names."""
    return _NAMES


def get(name: str) -> Recipe:
    """The recipe of a name.

    Raises:
        SettingsError: there is none.
    """
    if name not in _NAMES:
        raise SettingsError(f"there is no recipe {name!r}; {nearest(name, _NAMES)}")
    return importlib.import_module(f"podline.recipes.{name}").RECIPE


def describe(name: str) -> str:
    """What a recipe's author says about it: its module's docstring."""
    get(name)
    return (importlib.import_module(f"podline.recipes.{name}").__doc__ or "").strip()


def override(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A recipe with some values changed.

    Args:
        recipe: where to start from.
        changes: dotted path → value, as ``{"schedule.learning_rate": 0.1, "duration.steps": 500}``. A duration holds
            one of steps, epochs and examples: giving one takes the place of another.

    Raises:
        SettingsError: a path that recipes do not have, or a value that cannot be.
    """
    document = recipe.model_dump()
    paths = _paths(Recipe)
    for path, value in changes.items():
        if path not in paths:
            raise SettingsError(f"a recipe has no {path!r}; {nearest(path, paths)}")
        *branches, leaf = path.split(".")
        place = document
        for branch in branches:
            place[branch] = place.get(branch) or {}
            place = place[branch]
        if branches and leaf in Part.model_fields and _is_duration(place):
            place.clear()
        place[leaf] = value
    try:
        return Recipe.model_validate(document)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        # What is wrong with the whole of a recipe is about several of its values, and the message names them.
        value = f"{where} = {problem['input']!r}" if where else ", ".join(changes)
        raise SettingsError(f"recipe {recipe.name}: {value}: {problem['msg']}") from None


def _is_duration(place: Mapping[str, Any]) -> bool:
    return set(place) <= set(Part.model_fields)


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every dotted path that a model has, those of the models within it included."""
    found = []
    for name, field in model.model_fields.items():
        found.append(prefix + name)
        inner = _model_in(field.annotation)
        if inner is not None:
            found += _paths(inner, f"{prefix}{name}.")
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, be it optional or not."""
    choices = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return next((choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)), None)
