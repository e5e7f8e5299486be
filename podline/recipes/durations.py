"""Defines durations of a training in steps, epochs or shares."""

from __future__ import annotations

from pydantic import Field, model_validator

from podline.base.frozen import Frozen
from podline.recipes.epochs import Epochs


class Duration(Frozen):
    """A duration of training, given as exactly one of steps and epochs."""

    steps: int | None = Field(default=None, ge=0, le=1_000_000_000)
    epochs: float | None = Field(default=None, ge=0, le=100_000)

    @model_validator(mode="after")
    def _one(self) -> Duration:
        given = {name: value for name, value in self if value is not None}
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(type(self).model_fields)}; given: {given or 'none'}")
        return self

    @property
    def amount(self) -> float:
        """The number of steps or epochs."""
        return next(float(value) for _, value in self if value is not None)

    def scaled(self, factor: float) -> Duration:
        """Return the duration times a factor, rounded down to whole steps or epochs; at least one step.

        Durations below one epoch are rounded down to hundredths of an epoch.
        """
        amount = factor * self.amount
        if self.epochs is not None:
            return Duration(epochs=float(int(amount)) if amount >= 1 else max(int(100 * amount), 1) / 100)
        return Duration(steps=max(int(amount), 1))

    def __str__(self) -> str:
        """Format the duration, for example ``30 epochs`` or ``1,500,000 steps``."""
        name, value = next((name, value) for name, value in self if value is not None)
        amount = f"{value:,}" if isinstance(value, int) else f"{value:,g}"
        return f"{amount} {name.removesuffix('s') if value == 1 else name}"

    def in_steps(self, epochs: Epochs) -> int:
        """Return the duration rounded to whole steps; a duration above zero has at least one step."""
        if self.steps is not None:
            return self.steps
        passes = self.epochs or 0
        return max(round(epochs.step_at(passes)), 1 if passes else 0)


class Part(Duration):
    """A part of a training, given as exactly one of steps, epochs or a share of the whole.

    A share scales with the training's length: a recipe whose warm-up is a share can run for 2 epochs or for 200.
    """

    share: float | None = Field(default=None, ge=0, lt=1)

    def of(self, total_steps: int, epochs: Epochs) -> int:
        """Return this part of a training of ``total_steps``, in steps."""
        if self.share is not None:
            return round(self.share * total_steps)
        return self.in_steps(epochs)
