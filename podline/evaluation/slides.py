"""Whether a line of figures slides slowly downwards, looked at after each: an always-valid sequential test.

Each figure may lie within the noise of the one before it, and all of them together fall. A test that is held against
5 % each night finds a slide where there is none sooner or later. An e-process does not (Ville: "Étude critique de la
notion de collectif", 1939): for figures that only vary about a mean, the chance that it ever reaches 1 / r is at
most r, however long it goes on and whenever it is looked at.

This one looks at ranks. If figures only vary, however they are spread, the rank of each among those up to it is uniform
and tells nothing of the others (Rényi 1962). If they slide, ranks are low. The e-process is how likely the ranks are
with a preference for low ones against without, averaged over how strong it is and over the place where it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.figures import change_text
from podline.measures import measure_named

Floats = npt.NDArray[np.float64]

RATE = 0.05
"""Of lines that do not slide, at most this share is ever said to."""
# How much the lowest ranks are preferred: the density of a rank u, from 0 to 1, falls as exp(-preference * u).
_PREFERENCES = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
# It may begin with each figure whose place is a multiple of this.
_EVERY = 10


class Slide(NamedTuple):
    """A line that slides.

    Attributes:
        since: the place of the figure from which on it falls; from 0.
        length: how many figures there are.
        fall: by how much it has fallen since, along a straight line.
    """

    since: int
    length: int
    fall: float

    def sentence(self, measure: str, of: str) -> str:
        """Return the slide in words.

        Args:
            measure: the name of the metric that slides.
            of: what the figures are of, in the plural.
        """
        return (
            f"{measure_named(measure).label} slides: over the last {self.length - self.since} {of} it fell by about "
            f"{change_text(measure, self.fall).removeprefix('+')}, a little each time; of lines that do not slide at "
            f"most {100 * RATE:g} of 100 are ever said to"
        )


def slide_of(figures: Sequence[float]) -> Slide | None:
    """The slide of a line of figures of which more is better, the first one first; None if none is shown."""
    line = np.asarray(figures, np.float64)
    if evidence(line) < 1 / RATE:
        return None
    since = int(np.argmax(_ratios(line))) * _EVERY
    time = _times(len(line), since)
    slope = float((line - line.mean()) @ (time - time.mean()) / ((time - time.mean()) ** 2).sum())
    return Slide(since, len(line), -slope * float(time[-1]))


def evidence(line: Floats) -> float:
    """By how much likelier the ranks of the figures, (n,), are if they slide: an e-value."""
    if len(line) < 2:
        return 1.0
    ratios = _ratios(line)
    places = np.arange(1, len(ratios) + 1)
    weights = 1 / (places * (places + 1))
    # Slides that have not begun yet make the figures no likelier.
    return float(weights @ ratios + 1 - weights.sum())


def _ratios(line: Floats) -> Floats:
    """How much likelier the ranks are with a slide, by the place where it begins.

    Ranks are among all figures so far, and among those since that place, as the line may have risen before: the mean of
    both. Of equal figures the later one has the higher rank, which tells less of a slide.
    """
    not_above = np.tril(line[None, :] <= line[:, None]).astype(np.int64)
    among = np.cumsum(not_above[:, ::-1], axis=1)[:, ::-1]
    starts = range(0, len(line), _EVERY)
    count = np.arange(1, len(line) + 1)
    found = [[_likelier(among[since:, first], count[since:] - first) for first in {0, since}] for since in starts]
    return np.array([float(np.mean(each)) for each in found])


def _likelier(ranks: npt.NDArray[np.int64], among: npt.NDArray[np.int64]) -> float:
    """The ratio for ranks, (n,), of which each is from 1 to ``among``, (n,)."""
    preferred, numbers = _PREFERENCES[:, None], among[None, :]
    # The mean of the preference over all ranks: a geometric series.
    mean = np.expm1(-preferred) / np.expm1(-preferred / numbers) / numbers
    logarithms = -preferred * (ranks - 1) / numbers - np.log(mean)
    return float(np.exp(np.minimum(logarithms.sum(axis=1), 600)).mean())


def _times(count: int, since: int) -> Floats:
    return np.maximum(np.arange(count) - since, 0).astype(np.float64)
