"""A metric's value with its interval."""

from __future__ import annotations

from podline.base.frozen import Frozen


class Metric(Frozen):
    """A metric's value with its 95 % interval; ``low`` and ``high`` equal ``value`` if the interval is unknown."""

    value: float
    low: float
    high: float
