"""Changes values of a recipe's document by their dotted paths."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from podline.base.frozen import Json, JsonObject, is_object
from podline.recipes.durations import Part
from podline.recipes.uses import USES, has_effect


def with_changes(document: Mapping[str, Json], changes: Mapping[str, Json]) -> JsonObject:
    """Return a recipe's document with new values at the dotted paths of ``changes``.

    A duration has exactly one of steps, epochs and share; a new one replaces the old one. Settings that have no effect
    with a new kind of model, loss or schedule get their defaults. A new kind of optimizer keeps only weight decay,
    clipping and rates by layers; its learning rate and other settings get their defaults.

    Raises:
        ValueError: ``changes`` sets several of steps, epochs and share of one duration.
    """
    _require_one_unit(changes)
    changed = dict(document)
    for path, value in changes.items():
        name, _, rest = path.partition(".")
        inner = found if is_object(found := changed.get(name)) else {}
        if rest in Part.model_fields and inner.keys() <= Part.model_fields.keys():
            inner = {}
        changed[name] = with_changes(inner, {rest: value}) if rest else value
    _forget_other_optimizer(document, changed, changes)
    for section, uses in USES.items():
        kind = changes.get(f"{section}.kind")
        # The recipe's validation refuses a kind that is no text.
        if isinstance(kind, str) and is_object(inner := changed[section]):
            without = {name for name in uses if not has_effect(section, name, kind)}
            given = {path.rpartition(".")[2] for path in changes if path.startswith(f"{section}.")}
            changed[section] = {name: value for name, value in inner.items() if name not in without - given}
    return changed


_OF_ANY_OPTIMIZER = ("kind", "weight_decay", "clip_norm", "rates")


def _forget_other_optimizer(document: Mapping[str, Json], changed: JsonObject, changes: Mapping[str, Json]) -> None:
    """Remove the settings of the old optimizer if ``changes`` sets another kind of optimizer."""
    kind, before, optimizer = changes.get("optimizer.kind"), document.get("optimizer"), changed.get("optimizer")
    if kind is None or not is_object(before) or before.get("kind") == kind or not is_object(optimizer):
        return
    given = {path.split(".")[1] for path in changes if path.startswith("optimizer.")}
    changed["optimizer"] = {name: optimizer[name] for name in optimizer if name in given.union(_OF_ANY_OPTIMIZER)}
    if not changes.keys() & {"schedule", "schedule.learning_rate"} and is_object(schedule := changed.get("schedule")):
        changed["schedule"] = {name: value for name, value in schedule.items() if name != "learning_rate"}


def _require_one_unit(changes: Mapping[str, Json]) -> None:
    units = [
        path for path, value in changes.items() if path.rpartition(".")[2] in Part.model_fields and value is not None
    ]
    for path, other in itertools.combinations(units, 2):
        if path.rpartition(".")[0] == other.rpartition(".")[0]:
            raise ValueError(f"{path}={changes[path]} vs {other}={changes[other]}: give one of them")
