"""Click parameter types for numbers within bounds; the error messages contain the bounds."""

from __future__ import annotations

import math
import sys
from typing import Any

import click


class Whole(click.IntRange):
    """A whole number within bounds that fits into 64 bits, as code in C requires."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter:
            return self.fail(_expected(self, value), param, ctx)
        return number if abs(number) <= sys.maxsize else self.fail(f"{value!r} is too large.", param, ctx)


class Number(click.FloatRange):
    """A finite number within bounds."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; refuse NaN and infinity, which click accepts."""
        try:
            number: float = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        return number if math.isfinite(number) else self.fail(_expected(self, value), param, ctx)


def _expected(kind: Whole | Number, value: Any) -> str:
    low, high = (None if bound is None else f"{bound:.15g}" for bound in (kind.min, kind.max))
    bounds = [] if low is None else [f"above {low}" if kind.min_open else f"of at least {low}"]
    bounds += [] if high is None else [f"below {high}" if kind.max_open else f"of at most {high}"]
    return f"got {value!r}, expected a {kind.name} {' and '.join(bounds)}".rstrip() + "."
