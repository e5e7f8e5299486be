"""Whether a line of figures slides slowly downwards, looked at after each: an always-valid sequential test.

Each figure may lie within the noise of the one before it, and all of them together fall. A test that is held against
5 % each night finds a slide where there is none sooner or later. An e-process does not (Ville: "Étude critique de la
notion de collectif", 1939): for figures that only vary about a mean, the chance that it ever reaches 1 / r is at
most r, however long it goes on and whenever it is looked at.

This one is the ratio of how likely the figures are if they fall by a constant amount from some place on and if they do
not. What is not known is taken out: the mean and the deviation by invariance (the right Haar prior, as in Lai: "On
Confidence Sequences", Annals of Statistics 1976), the place where it began and the slope by averaging.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RATE = 0.05
"""Of lines that do not slide, at most this share is ever said to."""
# A slide falls by so many standard deviations of a figure each time; which one is not known.
_SLOPES = np.array([0.03, 0.06, 0.12, 0.25, 0.5, 1.0])
# It may begin with each figure whose place is a multiple of this.
_EVERY = 10
_GRID = np.linspace(0.0, 1.0, 401)[1:]
_FEWEST = 4


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

    def sentence(self, label: str, of: str) -> str:
        """The slide in words.

        Args:
            label: what slides.
            of: what the figures are of, in the plural.
        """
        return (
            f"{label} slides: over the last {self.length - self.since} {of} it fell by about {100 * self.fall:.1f} "
            f"points, a little each time; of lines that do not slide at most {100 * RATE:g} of 100 are ever said to"
        )


def slide_of(figures: Sequence[float]) -> Slide | None:
    """The slide of a line of figures of which more is better, the first one first; None if none is shown."""
    line = np.asarray(figures, np.float64)
    if evidence(line) < 1 / RATE:
        return None
    ratios = _ratios(line)
    since = int(np.argmax(ratios.mean(axis=1))) * _EVERY
    time = _times(len(line), since)
    slope = float((line - line.mean()) @ (time - time.mean()) / ((time - time.mean()) ** 2).sum())
    return Slide(since, len(line), -slope * float(time[-1]))


def evidence(line: Floats) -> float:
    """By how much likelier the figures, (n,), are if they slide: an e-value."""
    if len(line) < _FEWEST or float(np.ptp(line)) == 0:
        return 1.0
    ratios = _ratios(line).mean(axis=1)
    places = np.arange(1, len(ratios) + 1)
    weights = 1 / (places * (places + 1))
    # Slides that have not begun yet make the figures no likelier.
    return float(weights @ ratios + 1 - weights.sum())


def _ratios(line: Floats) -> Floats:
    """How much likelier the figures are with a slide, by the place where it begins and by its slope."""
    return np.array([_by_slope(line, since) for since in range(0, len(line), _EVERY)])


def _by_slope(line: Floats, since: int) -> Floats:
    """The ratio of the figures' densities with each slope and with none, after mean and deviation are taken out.

    With ``r`` the length of the centred figures in standard deviations, the density of what is invariant is the
    integral of ``r^(d - 1) exp(-|r v + b h|² / 2)`` over r: v is their direction, h the centred slide, b the slope.
    """
    time = _times(len(line), since)
    centred, slide = line - line.mean(), time - time.mean()
    along = float(centred @ slide) / float(np.linalg.norm(centred))
    size, freedom = float(slide @ slide), len(line) - 1
    lengths = (math.sqrt(freedom) + 8 + _SLOPES[:, None] * max(0.0, -along)) * _GRID
    steps = lengths[:, 0]
    exponents = (freedom - 1) * np.log(lengths) - lengths**2 / 2 - lengths * _SLOPES[:, None] * along
    exponents -= _SLOPES[:, None] ** 2 * size / 2
    norm = (freedom / 2 - 1) * math.log(2) + math.lgamma(freedom / 2)
    return np.exp(np.minimum(exponents - norm, 600)).sum(axis=1) * steps


def _times(count: int, since: int) -> Floats:
    return np.maximum(np.arange(count) - since, 0).astype(np.float64)
