"""A figure with its interval."""

from __future__ import annotations

from podline.base.frozen import Frozen


class Metric(Frozen):
    """A figure with its 95 % interval; ``low`` and ``high`` equal ``value`` if no interval is known."""

    value: float
    low: float
    high: float
