"""Defines phases, which change values of a recipe from an epoch on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from pydantic import Field, model_validator

from podline.base.frozen import Frozen, Json, omitted
from podline.recipes.durations import Duration

MAY_CHANGE = (
    "accumulate",
    "augmentation",
    "batch_size",
    "loss",
    "optimizer",
    "schedule",
    "trainable_layers",
)
"""The settings that a phase may change, with nested settings; ``TaskSettings.may_change`` adds those of a kind."""


class PhaseSettings(Frozen):
    """Values that replace values of the recipe from an epoch on, until a later phase changes them.

    Attributes:
        from_epoch: the first epoch of the phase, counted from 0.
        from_share: instead of from_epoch, the share of the run's epochs before the phase, rounded down to whole epochs.
        changes: dotted path → value, for example ``{"batch_size": 256, "schedule.learning_rate": 0.01}``.
    """

    from_epoch: int | None = omitted(None, ge=1, le=100_000)
    from_share: float | None = omitted(None, gt=0, lt=1)
    changes: dict[str, Json] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_beginning(self) -> PhaseSettings:
        if (self.from_epoch is None) == (self.from_share is None):
            raise ValueError(
                f"got from_epoch={self.from_epoch} and from_share={self.from_share}, expected exactly one of them"
            )
        return self

    def begins(self, duration: Duration) -> int:
        """Return the epoch at which the phase begins; 0 if ``from_share`` of a short run is less than an epoch.

        Raises:
            ValueError: ``from_share`` is given, but the run's length is not in epochs.
        """
        if self.from_epoch is not None:
            return self.from_epoch
        if duration.epochs is None or self.from_share is None:
            raise ValueError(
                f"phases: got from_share={self.from_share} for a run of {duration}, expected a length in epochs; "
                "give --epochs, or from_epoch instead of from_share"
            )
        return math.floor(self.from_share * duration.epochs + 1e-9)


def require_changeable(phases: Iterable[PhaseSettings], of_kind: tuple[str, ...]) -> None:
    """Check that phases change only settings that may change during a run.

    Raises:
        ValueError: a phase changes another setting.
    """
    known = sorted({*MAY_CHANGE, *of_kind})
    for path in itertools.chain.from_iterable(phase.changes for phase in phases):
        if not f"{path}.".startswith(tuple(f"{each}." for each in known)):
            raise ValueError(f"phases: {path} cannot change during a run; phases can change: {', '.join(known)}")
