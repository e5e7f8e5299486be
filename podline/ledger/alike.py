"""Compares the inputs of trainings, except for the seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from podline.documents.ledger_entry import CodeVersion, Origin

NO_PART_OF_TRAINING = frozenset({"keep", "promotion"})
"""Fields of a recipe that do not change a training: number of kept checkpoints, promotion rules."""
# Fields with arbitrary keys: a missing key is a different setting here, not a setting that an older version lacked.
_FREE = frozenset({"options", "also", "code", "conversion", "changes"})
# Packages that affect a training's result.
_PACKAGES = ("tensorflow", "tensorflow-tpu", "keras", "numpy", "opencv-python-headless")


def same_but_for_seed(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two runs have equal recipe settings, except the seed and :data:`NO_PART_OF_TRAINING`.

    A field that only one of the runs has is ignored, since a newer version of Podline added it, except in sections
    with arbitrary names, such as ``options``.

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
    """Return a key that is equal for trainings with the same data, code, libraries and recipe, whatever the seed.

    :data:`NO_PART_OF_TRAINING` is ignored too. The key is empty if the origin has no data.
    """
    if origin.data is None:
        return ""
    given = origin.settings.get("recipe", {})
    recipe = {name: value for name, value in given.items() if name not in (*NO_PART_OF_TRAINING, "seed")}
    code = origin.code.modules or origin.code.model_dump(mode="json")
    packages = origin.environment.packages
    libraries = {name: packages[name] for name in _PACKAGES if name in packages}
    return json.dumps([recipe, origin.data.fingerprint, code, libraries], sort_keys=True)


def same_code(one: CodeVersion, other: CodeVersion) -> bool:
    """Return whether two versions have equal training and evaluation modules, if known, even at different commits."""
    return one.modules == other.modules if one.modules and other.modules else one == other
