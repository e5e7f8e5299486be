"""By how much a promoted model may be worse, and what would decide where that is not shown. Pure arithmetic.

A margin is what the settings say, or, where that is more, what the test examples can show as soon as
:data:`ENOUGH_PEERS` trainings are known: so wide that models of settled trainings that are as good as the champion are
mostly promoted. It depends on the number of examples, on the spread that the settings assume, and on how many figures
are looked at, and on nothing that the candidate does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

from podline.promotion.chance import Fall, freedom_of, student_quantile

ENOUGH_PEERS, MOST_PEERS = 3, 20
"""From so many known trainings on a model is judged by what they differ by; more than the second are not asked."""

# Of models that are as good as the champion so many may miss a margin, all figures together, if each were normal …
_MISSED = 0.05
# … which they are not quite: their tails are so much longer, the variance being known from a few trainings.
_LONGER = 1.1
# So many times the test examples are looked at, to tell how many would decide.
_FACTORS = (1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


class Noise(NamedTuple):
    """What settled trainings of one recipe differ by in a figure, as the settings assume it.

    Attributes:
        usual: the variance.
        most: the variance where each answer is a matter of luck, as with a model that has become worse.
    """

    usual: float
    most: float


def noise_of(examples: float, spread: float) -> Noise:
    """Of a share as an angle: trainings agree about many examples, so half of a binomial share's is usual."""
    return Noise(1 / (8 * examples) + spread**2, 1 / (4 * examples) + spread**2)


class VerdictRates(NamedTuple):
    """What the verdicts are held to.

    Attributes:
        refused: of models that are as good, at most so many are refused, all figures together.
        promoted: of models that are worse by a margin, at most so many are promoted.
        figures: how many are looked at.
    """

    refused: float
    promoted: float
    figures: int


def margin_of(noise: Noise, floor: float, rates: VerdictRates) -> float:
    """By how much a figure may be worse, in its own unit.

    Args:
        noise: of the figure.
        floor: what it may be worse by in any case.
        rates: of wrong verdicts.
    """
    held = student_quantile(rates.promoted, freedom_of(ENOUGH_PEERS))
    shown = held * math.sqrt(noise.most + noise.usual / ENOUGH_PEERS)
    return max(floor, shown + _reached(rates) * math.sqrt(noise.usual * (1 + 1 / ENOUGH_PEERS)))


def normal_margin(deviation: float, rates: VerdictRates) -> float:
    """By how much a figure may be worse whose difference from the champion's is normal, with this deviation."""
    return (_normal_quantile(rates.promoted) + _reached(rates)) * deviation


def _reached(rates: VerdictRates) -> float:
    """Deviations that few models that are as good fall by."""
    return _LONGER * _normal_quantile(_MISSED / rates.figures)


def _normal_quantile(rate: float) -> float:
    return -NormalDist().inv_cdf(rate)


def share_below(share: float, margin: float) -> float:
    """The share that is worse than another by a margin in angles; 0 where no share is so much worse."""
    return math.sin(max(0.0, math.asin(math.sqrt(min(max(share, 0.0), 1.0))) - margin)) ** 2


class Figure(NamedTuple):
    """A figure between the two: neither shown to be worse nor to be within its margin.

    Attributes:
        fall: how far it lies below those of the peers.
        noise: of the figure, at so many times the test examples.
        floor: see :func:`margin_of`.
    """

    fall: Fall
    noise: Callable[[float], Noise]
    floor: float

    def more_trainings(self, rates: VerdictRates) -> int | None:
        """How many more known trainings would decide, were all else as it is; None if none would."""
        more = range(1, MOST_PEERS - self.fall.peers + 1)
        return next((each for each in more if self._is_decided(rates, self.fall.peers + each)), None)

    def more_examples(self, rates: VerdictRates) -> float | None:
        """How many times the test examples would decide, were all else as it is; None if none would."""
        return next((times for times in _FACTORS if self._is_decided(rates, self.fall.peers, times)), None)

    def _is_decided(self, rates: VerdictRates, peers: int, times: float = 1) -> bool:
        noise = self.noise(times)
        variance = max(self.fall.variance - self.noise(1).usual + noise.usual, noise.usual)
        fall = Fall(self.fall.by, variance, peers, self.fall.step / times)
        within = fall.chance_within(margin_of(noise, self.floor, rates), noise.most) < rates.promoted
        return within or fall.chance() < rates.refused / rates.figures
