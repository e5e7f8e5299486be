"""Types of click for numbers within bounds, whose errors are in plain words."""

from __future__ import annotations

import math
import sys
from typing import Any

import click


class Whole(click.IntRange):
    """A whole number within bounds, and of 64 bits."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, which code in C can take."""
        number: int = super().convert(value, param, ctx)
        return number if abs(number) <= sys.maxsize else self.fail(f"{value!r} is too large.", param, ctx)


class Number(click.FloatRange):
    """A finite number within bounds."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; comparisons with bounds let NaN pass, and infinity where a bound is missing."""
        number: float = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value!r} is not a finite number.", param, ctx)
