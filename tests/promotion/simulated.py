"""How often promotion promotes and refuses models that are drawn: equal ones, and ones that are worse by the margin.

    python tests/promotion/simulated.py
    python tests/promotion/simulated.py --draws 1000 --unsettled
    python tests/promotion/simulated.py --slides --draws 500

Prints a table for each size of a test split, with a row for each number of known trainings; docs/promotion.md has the
figures. 10,000 draws a cell take about five minutes on two cores. Nothing is trained, and all draws of a cell are one
array: the arithmetic is :mod:`podline.promotion.chance` and :mod:`podline.promotion.margins` themselves.

Three of four examples are easy (99 % of trainings get them right), the others are a matter of luck (30 to 100 %), so
90.5 % of the answers are right. Each training has a shift of its own in each class, and one in all of them, as large as
the settings assume; of trainings that have not settled they are five times that.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.evaluation.slides import slide_of
from podline.promotion.chance import Share, angle_of, fall_of, freedom_of, half_an_example, spread_of, spread_of_all
from podline.promotion.chance import student_quantile as quantile
from podline.promotion.margins import ENOUGH_PEERS, VerdictRates, margin_of, noise_of, share_below
from podline.promotion.rules import ModelFigures
from podline.recipes.promotion_settings import PromotionSettings

RULES = PromotionSettings()
KNOWN = (1, 2, 3, 5, 10, 20)
_EASY, _SHARE_EASY = 0.99, 0.75
_LEVELS = np.array([_EASY, *(0.3 + 0.7 * (np.arange(8) + 0.5) / 8)])
_WEIGHTS = np.array([_SHARE_EASY, *[(1 - _SHARE_EASY) / 8] * 8])
RIGHT = float(_LEVELS @ _WEIGHTS)
_AT_ONCE = 2_000_000
_YEAR = 365

Counts = npt.NDArray[np.int64]


class Split(NamedTuple):
    """A test split.

    Attributes:
        parts: classes, or joints.
        examples: of each.
    """

    parts: int
    examples: int

    @property
    def rates(self) -> VerdictRates:
        """What the verdicts are held to."""
        return VerdictRates(RULES.rate, RULES.wrong_rate, self.parts + 1)

    @property
    def spread(self) -> float:
        """That is assumed of the whole."""
        return spread_of_all(RULES.spread, RULES.part_spread, self.parts)

    @property
    def part_margin(self) -> float:
        """Of a class or joint, an angle."""
        return margin_of(noise_of(self.examples, RULES.part_spread), RULES.part_margin, self.rates)

    @property
    def margin(self) -> float:
        """Of what counts, an angle."""
        return margin_of(noise_of(self.parts * self.examples, self.spread), RULES.margin, self.rates)

    def right(self, worse: int | None, known: int) -> npt.NDArray[np.float64]:
        """The share of right answers of each part, (parts,), by expectation.

        Args:
            worse: so many parts are worse by their margin; all of them by that of the whole; None if they are equal.
            known: trainings; of fewer than three the settings' margins count.
        """
        margins = (self.part_margin, self.margin) if known >= ENOUGH_PEERS else (RULES.part_margin, RULES.margin)
        share = np.full(self.parts, RIGHT)
        if worse is not None:
            share[:worse] = share_below(RIGHT, margins[worse == self.parts])
        return share


class Drawn(NamedTuple):
    """Right answers of many draws.

    Attributes:
        known: of the known trainings, the champion first, (draws, known, parts).
        candidate: of the candidate, (draws, parts).
        lost: those that the champion alone got right, (draws, parts).
        gained: those that the candidate alone got right, (draws, parts).
    """

    known: Counts
    candidate: Counts
    lost: Counts
    gained: Counts


def drawn(
    random: np.random.Generator, split: Split, draws: int, known: int, right: npt.NDArray[np.float64], spread: float
) -> Drawn:
    """Models of which the candidate's parts have these shares of right answers."""
    groups = random.multinomial(split.examples, _WEIGHTS, (draws, split.parts))
    shifts = spread * random.standard_normal((draws, known + 1, split.parts))
    shifts += spread * RULES.spread / RULES.part_spread * random.standard_normal((draws, known + 1, 1))
    peers = random.binomial(groups[:, None], _chances(np.full(split.parts, RIGHT), shifts[:, :-1]))
    of_candidate = _chances(right, shifts[:, -1])
    both = random.binomial(peers[:, 0], of_candidate)
    gained = random.binomial(groups - peers[:, 0], of_candidate)
    sums = [each.sum(axis=-1) for each in (peers, both + gained, peers[:, 0] - both, gained)]
    return Drawn(*sums)


def _chances(right: npt.NDArray[np.float64], shifts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of each kind of example, by model and part; shifts are given for a share of one half."""
    moved = 2 * np.sqrt(right * (1 - right)) * shifts
    return np.clip(_LEVELS * (right / RIGHT)[:, None] + moved[..., None], 0, 1)


class Verdicts(NamedTuple):
    """What became of each draw, (draws,): promoted, refused, neither."""

    promoted: npt.NDArray[np.bool_]
    refused: npt.NDArray[np.bool_]


def verdicts(split: Split, models: Drawn) -> Verdicts:
    """By peers, as :func:`podline.promotion.rules.checks_of` decides, without calibration."""
    peers, value = np.moveaxis(models.known, 1, 0) / split.examples, models.candidate / split.examples
    angles = angle_of(peers, split.examples)
    everywhere = angles.var(axis=0, ddof=1).mean(axis=1)
    of_all = np.hypot(RULES.spread, np.sqrt(everywhere * 1.5 / split.parts))
    noises = [noise_of(examples, spread) for examples, spread in _scales(split)]
    main = fall_of(
        angle_of(peers.mean(axis=2), split.parts * split.examples),
        angle_of(value.mean(axis=1), split.parts * split.examples),
        np.maximum(noises[0].usual, 1 / (8 * split.parts * split.examples) + of_all**2),
    )
    expected = np.broadcast_to(np.maximum(noises[1].usual, everywhere)[:, None], value.shape)
    parts = fall_of(angles, angle_of(value, split.examples), expected)
    within, beyond = (
        quantile(rate, freedom_of(main.peers)) for rate in (RULES.wrong_rate, RULES.rate / (split.parts + 1))
    )
    main = main._replace(step=half_an_example(value.mean(axis=1), split.parts * split.examples))
    parts = parts._replace(step=half_an_example(value, split.examples))
    refused = (parts.deviations > beyond).any(axis=1) | (main.deviations > beyond)
    shown = (parts.deviations_within(split.part_margin, noises[1].most) > within).all(axis=1)
    shown &= main.deviations_within(split.margin, noises[0].most) > within
    return Verdicts(shown & ~refused, refused)


def _scales(split: Split) -> list[tuple[int, float]]:
    return [(split.parts * split.examples, split.spread), (split.examples, RULES.part_spread)]


def promoted_by_pairs(split: Split, models: Drawn) -> npt.NDArray[np.bool_]:
    """While one or two trainings are known, by the spreads that are assumed: (draws,).

    What the two models show of their seeds can only make fewer of it.
    """
    found = np.ones(len(models.candidate), bool)
    for lost, gained, examples, spread, margin in (
        (models.lost, models.gained, split.examples, RULES.part_spread, RULES.part_margin),
        (
            models.lost.sum(1, keepdims=True),
            models.gained.sum(1, keepdims=True),
            split.parts * split.examples,
            RULES.spread,
            RULES.margin,
        ),
    ):
        deviation = np.hypot(np.sqrt(lost + gained + 1) / examples, math.sqrt(2) * spread_of(spread, RIGHT))
        room = RIGHT - share_below(RIGHT, margin) - (lost - gained) / examples
        found &= (room / deviation > 1.6448536).all(axis=1)
    return found


def cell(
    split: Split, known: int, worse: int | None, draws: int, spread: float = RULES.part_spread, seed: int = 0
) -> tuple[float, float]:
    """The shares of models that are promoted, and that are refused; of fewer than three known, the first alone."""
    random = np.random.default_rng([seed, split.parts, split.examples, known, worse or 0])
    at_once = max(1, _AT_ONCE // ((known + 1) * split.parts))
    counted, right = np.zeros(2), split.right(worse, known)
    for start in range(0, draws, at_once):
        models = drawn(random, split, min(at_once, draws - start), known, right, spread)
        if known < ENOUGH_PEERS:
            counted += promoted_by_pairs(split, models).sum(), math.nan
        else:
            counted += [each.sum() for each in verdicts(split, models)]
    return float(counted[0]) / draws, float(counted[1]) / draws


def figures(split: Split, counts: Counts) -> ModelFigures:
    """The figures of one drawn model, (parts,), as the rules take them."""
    parts = {
        f"part {place}": Share(float(right) / split.examples, split.examples) for place, right in enumerate(counts)
    }
    whole = Share(float(counts.mean()) / split.examples, split.parts * split.examples)
    return ModelFigures("run", "accuracy", whole, parts)


SPLITS = {
    "10 classes of 100": Split(10, 100),
    "10 classes of 1,000": Split(10, 1000),
    "10 classes of 5": Split(10, 5),
    "100 classes of 100": Split(100, 100),
    "100 classes of 5": Split(100, 5),
    "17 joints of 200": Split(17, 200),
}


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--unsettled", action="store_true", help="trainings that differ five times as much")
    parser.add_argument(
        "--slides", action="store_true", help="lines of champions that slide, or do not, in their place"
    )
    given = parser.parse_args()
    if given.slides:
        _slides(given.draws)
        return
    spread = RULES.part_spread * (5 if given.unsettled else 1)
    for name, split in SPLITS.items():
        below = [100 * share_below(RIGHT, margin) for margin in (split.part_margin, split.margin)]
        _say(
            f"\n{name}: {100 * RIGHT:.1f} % right; margins: a part down to {below[0]:.1f} %, all to {below[1]:.1f} %\n"
        )
        _say("| known | equal: promoted | refused | worse in one: promoted | refused | in two | | in all | |")
        _say("|---|---|---|---|---|---|---|---|---|")
        for known in KNOWN:
            cells = [cell(split, known, worse, given.draws, spread) for worse in (None, 1, 2, split.parts)]
            _say(f"| {known} | {' | '.join(_percent(share) for each in cells for share in each)} |")


def _slides(draws: int) -> None:
    """Alarms in a year of nights without a slide, and nights until a tenth of a point a night is found."""
    random = np.random.default_rng(0)
    for tails, freedom in (("normal", 1000), ("Student's, four degrees of freedom", 4)):
        alarms = [first_alarm(random.standard_t(freedom, _YEAR)) is not None for _ in range(draws)]
        _say(f"no slide, {_YEAR} nights, {tails}: {_percent(sum(alarms) / draws)} with an alarm")
    for points in (0.2, 0.3, 0.5, 0.9):
        for start in (0, 100):
            falling = 0.1 * np.maximum(np.arange(start + 100) - start, 0)
            lines = (points * random.standard_normal(len(falling)) - falling for _ in range(draws // 5))
            nights = [(first_alarm(line) or math.inf) - start for line in lines]
            middle, most = np.percentile(nights, [50, 95])
            _say(f"{points} points between nights, a slide after {start}: found after {middle:.0f}, 95 %: {most:.0f}")


def first_alarm(line: npt.NDArray[np.float64]) -> int | None:
    """After how many figures a slide is told, if one looks after each."""
    return next((count for count in range(1, len(line) + 1) if slide_of(line[:count])), None)


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:.1f} %"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
