"""Values of a recipe that change from an epoch on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from pydantic import Field

from podline.frozen import Frozen, Json

MAY_CHANGE = (
    "augmentation",
    "batch_size",
    "loss",
    "optimizer",
    "schedule",
    "trainable_layers",
)
"""What can change during a run: these values, what a kind adds (``TaskSettings.may_change``), and what is below."""


class PhaseSettings(Frozen):
    """Values that a recipe has from an epoch on, until a later phase changes them again.

    Attributes:
        from_epoch: counted from the beginning of the run; the recipe itself is from epoch 0 on.
        changes: dotted path → value, as ``{"batch_size": 256, "schedule.learning_rate": 0.01}``.
    """

    from_epoch: int = Field(ge=1)
    changes: dict[str, Json] = Field(min_length=1)


def require_changeable(phases: Iterable[PhaseSettings], of_kind: tuple[str, ...]) -> None:
    """Refuse phases that change what cannot change during a run.

    Raises:
        ValueError: they do.
    """
    known = sorted({*MAY_CHANGE, *of_kind})
    for path in itertools.chain.from_iterable(phase.changes for phase in phases):
        if not f"{path}.".startswith(tuple(f"{each}." for each in known)):
            raise ValueError(f"phases: {path} cannot change during a run; these can: {', '.join(known)}")
