"""Finds trainings that equal each other, except for the seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from podline.documents.ledger_entry import CodeVersion, Environment, Origin

NO_PART_OF_TRAINING = frozenset({"keep", "promotion"})
"""Fields of a recipe that do not change a training: kept checkpoints, promotion rules."""
# Fields whose content is free, so that a missing name is another setting, and not one of an older version of Podline.
_FREE = frozenset({"options", "also", "code", "conversion", "changes"})
_PACKAGES = ("tensorflow", "tensorflow-tpu", "keras", "numpy", "opencv-python-headless")


def same_but_for_seed(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two runs have the same recipe values, except the seed.

    A field that only one run has belongs to a newer version of Podline, and is ignored.

    Args:
        before: ``settings["recipe"]`` of the first run.
        after: ``settings["recipe"]`` of the second run.
    """
    compared = (before.keys() & after.keys()) - NO_PART_OF_TRAINING - {"seed"}
    return bool(compared) and all(_same(before[name], after[name], free=name in _FREE) for name in compared)


def _same(before: Any, after: Any, *, free: bool) -> bool:
    if free or not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return bool(before == after)
    return all(_same(before[name], after[name], free=name in _FREE) for name in before.keys() & after.keys())


def training_key(origin: Origin) -> str:
    """Return the text of a model's recipe without its seed, data, training code and libraries; empty without data."""
    if origin.data is None:
        return ""
    given = origin.settings.get("recipe", {})
    recipe = {name: value for name, value in given.items() if name not in (*NO_PART_OF_TRAINING, "seed")}
    code = origin.code.modules or origin.code.model_dump(mode="json")
    return json.dumps([recipe, origin.data.fingerprint, code, libraries(origin.environment)], sort_keys=True)


def same_code(one: CodeVersion, other: CodeVersion) -> bool:
    """Return whether the modules that train and evaluate are equal, even at other commits."""
    return one.modules == other.modules if one.modules and other.modules else one == other


def libraries(environment: Environment) -> dict[str, str]:
    """Return the versions of the packages that compute a training."""
    return {name: environment.packages[name] for name in _PACKAGES if name in environment.packages}
