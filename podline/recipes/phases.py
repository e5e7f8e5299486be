"""Values of a recipe that change from an epoch on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from podline.frozen import Frozen, Json

MAY_CHANGE = (
    "augmentation",
    "batch_size",
    "label_smoothing",
    "loss",
    "optimizer",
    "pose.augmentation",
    "pose.emphasis",
    "pose.targets.joint_sigma",
    "pose.targets.limb_sigma",
    "schedule",
    "trainable_layers",
)
"""What can change during a run: these values, and what is below them."""


class PhaseSettings(Frozen):
    """Values that a recipe has from an epoch on, until a later phase changes them again.

    Attributes:
        from_epoch: counted from the beginning of the run; the recipe itself is from epoch 0 on.
        changes: dotted path → value, as ``{"batch_size": 256, "schedule.learning_rate": 0.01}``.
    """

    from_epoch: int = Field(ge=1)
    changes: dict[str, Json] = Field(min_length=1)

    @field_validator("changes")
    @classmethod
    def _may_change(cls, changes: dict[str, Json]) -> dict[str, Json]:
        for path in changes:
            if not f"{path}.".startswith(tuple(f"{known}." for known in MAY_CHANGE)):
                raise ValueError(f"{path} cannot change during a run; these can: {', '.join(MAY_CHANGE)}")
        return changes


def with_changes(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's document with the values at some dotted paths changed."""
    changed = dict(document)
    for path, value in changes.items():
        name, _, rest = path.partition(".")
        changed[name] = with_changes(changed.get(name) or {}, {rest: value}) if rest else value
    return changed
