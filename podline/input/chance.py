"""Random draws for examples by their ids."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from podline.data.order import random_below, random_bits, random_uniform


@dataclass(frozen=True)
class Chance:
    """Random draws for n examples, which depend only on seed, epoch and ids, not on the batch.

    Attributes:
        seed: the run's seed.
        epoch: number of the epoch.
        ids: ids of the examples, (n,); see :meth:`podline.data.order.TrainingOrder.batch`.
        prefix: prefix of the purposes of all draws; other prefixes give independent draws.
    """

    seed: int
    epoch: int
    ids: npt.ArrayLike
    prefix: str = ""

    def named(self, prefix: str) -> Chance:
        """Return independent draws for the same examples."""
        return replace(self, prefix=self.prefix + prefix)

    def below(self, purpose: str, bound: int) -> npt.NDArray[np.int64]:
        """Draw an integer in [0, bound) for each example, int64, shape (n,); purposes are independent."""
        return random_below(self.seed, self.prefix + purpose, self.epoch, self.ids, bound)

    def between(self, purpose: str, low: float, high: float) -> npt.NDArray[np.float64]:
        """Draw a number in [low, high) for each example, float64, shape (n,)."""
        return low + (high - low) * random_uniform(self.seed, self.prefix + purpose, self.epoch, self.ids)

    def noise(self, purpose: str, place: int, size: int) -> npt.NDArray[np.uint8]:
        """Draw bytes for the example with index ``place`` in ``ids``: uint8, (size,)."""
        name = f"{self.prefix}{purpose}/{np.asarray(self.ids)[place]}"
        return random_bits(self.seed, name, self.epoch, np.arange(-(-size // 8))).astype("<u8").view(np.uint8)[:size]
