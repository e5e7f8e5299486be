"""The base of augmentation settings; each kind of task has its own class, which names the code that applies it."""

from __future__ import annotations

import operator
from typing import ClassVar

from pydantic import Field

from podline.frozen import Frozen, Json

_COLOURS = ("brightness", "contrast", "saturation", "hue")


class Augmentation(Frozen):
    """The settings of random augmentation.

    Attributes:
        applied_by: ``module:name`` of a function ``(arrays, ids, settings, seed, epoch, manifest) -> arrays``: the
            fields of a batch by name, the examples' ids (n,), these settings, the run's seed, the epoch, and the data
            set's manifest.
        also: augmentations of installed packages, name → amount; applied last, in the order of their names.
    """

    applied_by: ClassVar[str]

    also: dict[str, Json] = Field(default_factory=dict, exclude_if=operator.not_)

    @property
    def colours(self) -> dict[str, float]:
        """Return the settings that change colours, with their amounts, by name; empty without any."""
        return {name: value for name, value in dict(self).items() if name in _COLOURS and value}
