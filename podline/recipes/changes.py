"""Values of a recipe that change by epoch."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, model_validator

from podline.frozen import Frozen

T = TypeVar("T")


class ByEpoch(Frozen, Generic[T]):
    """A value from some epochs on; before the first of them it is what the recipe says.

    Attributes:
        at: pairs of an epoch, from 1 on, and the value from its beginning on; in the order of the epochs.
        between: what the value is between two of them (the recipe's own at epoch 0 is the first): in ``steps`` it stays
            as it was; ``linear`` draws a line, and numbers that are whole are rounded.
    """

    at: tuple[tuple[Annotated[int, Field(ge=1)], T], ...] = Field(min_length=1)
    between: Literal["steps", "linear"] = "steps"

    @model_validator(mode="after")
    def _in_order(self) -> ByEpoch[T]:
        for (epoch, _), (following, _) in itertools.pairwise(self.at):
            if following <= epoch:
                raise ValueError(f"epoch {epoch} is followed by epoch {following}; give the epochs in their order")
        return self

    def value(self, first: T, epoch: float) -> T:
        """The value at an epoch, or at a part of one.

        Args:
            first: the recipe's own.
            epoch: passes over the data.
        """
        points = [(0, first), *self.at]
        place = max(place for place, (start, _) in enumerate(points) if start <= epoch)
        start, value = points[place]
        if self.between == "steps" or place + 1 == len(points):
            return value
        end, following = points[place + 1]
        return _between(value, following, (epoch - start) / (end - start))


def _between(value: Any, following: Any, share: float) -> Any:
    """A value on the line from one to another; of settings, each number on its own line."""
    if isinstance(value, Frozen):
        names = type(value).model_fields
        return value.model_copy(
            update={name: _between(getattr(value, name), getattr(following, name), share) for name in names}
        )
    if isinstance(value, Mapping):
        return {name: _between(one, following.get(name, one), share) for name, one in value.items()}
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    number = value + (following - value) * share
    return round(number) if isinstance(value, int) else number
