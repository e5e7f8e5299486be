"""Simulates how often the rules of promotion are wrong, on synthetic models.

    python -m simulations.promotion
    python -m simulations.promotion --lines 1000 --world tails

A *line* is 365 nights: a reference with several trainings, one test split, and a candidate with a new seed each night.
An answer depends on the example's difficulty and on noise. Each training shifts the accuracy of each class, and of all
classes together. A *worse* recipe has lost exactly the margin, in one class or in total. The result is the table of
docs/explanation/promotion.md. With 400 lines, a true rate of 5 % is estimated as 3 to 7 %, and 8 % as 5 to 11 %.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from podline.base.arrays import Floats
from podline.contract.noise import NIGHTS, assumed_spread
from podline.contract.rules import MAIN, Figure, number, shares
from podline.recipes.promotion_settings import PromotionSettings

RATE = PromotionSettings().rate
# The standard deviation of difficulty, in units of an answer's noise: two trainings agree about most examples.
_DIFFICULTY = 2.0
_SLOPE = float(np.hypot(1, _DIFFICULTY))
_AT_ONCE = 4_000_000

Random = np.random.Generator


class Nights(NamedTuple):
    """Which candidates are promoted and which are refused: bool (nights,)."""

    promoted: npt.NDArray[np.bool_]
    refused: npt.NDArray[np.bool_]


def verdicts(figures: list[Figure]) -> Nights:
    """Return the verdicts on the candidates of all nights; each figure has their values (nights,)."""
    limits = [figure.thresholds(len(figures), RATE) for figure in figures]
    good, bad = (
        np.array([figure.change >= limit.promoted for figure, limit in zip(figures, limits, strict=True)]),
        np.array([figure.change < limit.refused for figure, limit in zip(figures, limits, strict=True)]),
    )
    better = figures[0].change > figures[0].beyond(len(figures), RATE)
    return Nights(good[0] & (good.all(axis=0) | better), bad[0] | (bad.any(axis=0) & ~better))


@dataclass(frozen=True)
class Classes:
    """A classification task, and the variation between its seeds.

    Attributes:
        classes: number of classes.
        examples: number of test examples of each class.
        share: share of right answers.
        times: the spread between seeds, as a multiple of the assumed spread.
        tails: degrees of freedom of Student's distribution of a seed's shift; infinite for a normal distribution.
        copies: how often each example is in the test split.
    """

    classes: int = 10
    examples: int = 100
    share: float = 0.9
    times: float = 1.0
    tails: float = np.inf
    copies: int = 1

    def line(self, random: Random, trainings: int, worse: str | float, nights: int) -> Nights:
        """Return the verdicts of a line.

        Args:
            random: the random generator.
            trainings: number of trainings of the reference.
            worse: what has become worse by the margin: ``nothing``, ``class`` or ``whole``; or ``better``; or the loss
                in total.
            nights: number of candidates, each with another seed.
        """
        drawn = random.standard_normal((self.classes, self.examples // self.copies), np.float32)
        difficulty = (_DIFFICULTY * drawn).astype(np.float32)
        known = self._answers(random, difficulty, self._shifts(random, trainings)).astype(np.float64)
        figures = self._figures(known, known[:1])
        margins = [float(np.max(figure.thresholds(len(figures), RATE).margin)) for figure in figures]
        losses = {"whole": margins[0], "better": -margins[0]}
        lost = losses.get(worse, 0.0) if isinstance(worse, str) else worse
        shift = np.full(self.classes, -lost)
        if worse == "class":
            shift[0] = -margins[1]
        found, at_once = list[Nights](), max(1, _AT_ONCE // (self.classes * self.examples))
        for start in range(0, nights, at_once):
            shifts = self._shifts(random, min(at_once, nights - start)) + shift
            found.append(verdicts(self._figures(known, self._answers(random, difficulty, shifts))))
        return Nights(*(np.concatenate(each) for each in zip(*found, strict=True)))

    def _shifts(self, random: Random, trainings: int) -> Floats:
        """Return the random change of each class's share of right answers, float64 (trainings, classes)."""
        spread = assumed_spread("classification", self.classes)
        whole = spread.main * _drawn(random, self.tails, trainings, 1)
        # The shifts of classes add up to zero, so that the total keeps its own spread.
        apart = _drawn(random, self.tails, trainings, self.classes)
        drawn = whole + spread.part * (apart - apart.mean(axis=1, keepdims=True))
        return self.times * 2 * np.sqrt(self.share * (1 - self.share)) * drawn

    def _answers(self, random: Random, difficulty: Any, shifts: Floats) -> npt.NDArray[np.bool_]:
        """Return random answers, right or wrong: bool (trainings, classes, examples)."""
        mean = (ndtri(np.clip(self.share + shifts, 1e-6, 1 - 1e-6)) * _SLOPE).astype(np.float32)
        noise = random.standard_normal((*shifts.shape, difficulty.shape[-1]), np.float32)
        return np.repeat(noise > -(mean[..., None] + difficulty), self.copies, axis=-1)

    def _figures(self, known: Floats, answers: npt.NDArray[Any]) -> list[Figure]:
        """Return the figures of the accuracy and of each class; ``answers`` is bool (nights, classes, examples)."""
        spread, count = assumed_spread("classification", self.classes), self.classes
        whole = shares({"accuracy": known.reshape(len(known), -1)}, {"accuracy": known[0].ravel()}, spread.main, "auto")
        parts = {str(label): known[:, label] for label in range(count)}
        each = shares(parts, {name: right[0] for name, right in parts.items()}, spread.part, "auto")
        made = [*(replace(figure, rule=MAIN) for figure in whole), *(replace(figure, rule="class") for figure in each)]
        by = answers - known.mean(axis=0)
        groups = [by.reshape(len(by), -1), *(by[:, label] for label in range(count))]
        return [
            replace(
                figure,
                value=figure.before + group.mean(axis=1),
                sampled=((group**2).sum(axis=1) + 1) / (group.shape[1] + 2) ** 2,
            )
            for figure, group in zip(made, groups, strict=True)
            if figure.rule == MAIN or figure.counts
        ]


@dataclass(frozen=True)
class Numbers:
    """A task with one figure, such as AP, which is simplified to the mean of a score per image.

    Attributes:
        images: number of test images.
        times: see :class:`Classes`.
        tails: see :class:`Classes`.
    """

    images: int = 500
    times: float = 1.0
    tails: float = np.inf

    def line(self, random: Random, trainings: int, worse: str, nights: int) -> Nights:
        """Return the verdicts of a line; see :meth:`Classes.line`. ``class`` means the same as ``whole``."""
        easy = random.beta(2, 1, self.images)
        known = self._scores(random, easy, np.zeros(trainings))
        figure = self._figure(known, known[:1])
        margin = float(np.max(figure.thresholds(1, RATE).margin))
        shift = {"nothing": 0.0, "better": margin}.get(worse, -margin)
        return verdicts([self._figure(known, self._scores(random, easy, np.full(nights, shift)))])

    def _scores(self, random: Random, easy: Floats, shifts: Floats) -> Floats:
        """Return random scores of each image, float64 (networks, images)."""
        spread = self.times * assumed_spread("pose", 0).main
        moved = shifts + spread * _drawn(random, self.tails, len(shifts), 1)[:, 0]
        return easy + moved[:, None] + 0.2 * random.standard_normal((len(shifts), self.images))

    def _figure(self, known: Floats, candidates: Floats) -> Figure:
        changes = (candidates - known[0]).var(axis=1) / self.images
        values = [*known.mean(axis=1).tolist(), float(candidates[0].mean())]
        variances = float(changes[0]), float(known[0].var() / self.images)
        made = number("AP", "ap", values, variances, assumed_spread("pose", 0).main, "auto")
        sampled = changes * (1 + 1 / len(known)) / 2
        return replace(made, rule=MAIN, value=candidates.mean(axis=1), sampled=sampled)


def _drawn(random: Random, tails: float, *shape: int) -> Floats:
    if np.isinf(tails):
        return random.standard_normal(shape)
    return random.standard_t(tails, shape) * np.sqrt((tails - 2) / tails)


WORLDS: dict[str, Classes | Numbers] = {
    "10 classes of 100": Classes(),
    "10 classes of 100, heavy tails": Classes(tails=5),
    "10 classes of 100, twice the spread": Classes(times=2),
    "2 classes of 200": Classes(classes=2, examples=200),
    "2 classes of 200, heavy tails": Classes(classes=2, examples=200, tails=5),
    "50 classes of 50": Classes(classes=50, examples=50, share=0.85),
    "99 % right": Classes(share=0.99, examples=200),
    "each example twice": Classes(copies=2),
    "AP of 500 images": Numbers(),
    "AP, heavy tails": Numbers(tails=5),
    "AP, twice the spread": Numbers(times=2),
}
TRAININGS = (1, 3, 8)


def rates(world: Classes | Numbers, trainings: int, lines: int, seed: int = 0) -> dict[str, float]:
    """Return the share of years with a wrong verdict, and of nights on which equal and better models are promoted."""
    random = np.random.default_rng([seed, trainings])
    equal = [world.line(random, trainings, "nothing", NIGHTS) for _ in range(lines)]
    years = {
        worse: [world.line(random, trainings, worse, NIGHTS) for _ in range(lines)] for worse in ("whole", "class")
    }
    better = [world.line(random, trainings, "better", 1).promoted.any() for _ in range(lines)]
    return {
        "promoted": float(np.mean([line.promoted.mean() for line in equal])),
        "better": float(np.mean(better)),
        "refused": float(np.mean([line.refused.any() for line in equal])),
        **{worse: float(np.mean([line.promoted.any() for line in found])) for worse, found in years.items()},
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Simulate how often the rules of promotion are wrong.")
    parser.add_argument("--lines", type=int, default=400, help="number of simulated years for each cell")
    parser.add_argument("--world", default="", help="only test splits whose names contain this text")
    given = parser.parse_args()
    sys.stdout.write(
        "| test split | known trainings | equal: promoted a night | better by the margin: promoted | equal: refused in "
        "a year | worse by the margin: promoted in a year | worse by it in one class |\n|---|---|---|---|---|---|---|\n"
    )
    for name, world in WORLDS.items():
        for trainings in TRAININGS if given.world in name else ():
            found = rates(world, trainings, given.lines)
            texts = (f"{100 * found[key]:.1f} %" for key in ("promoted", "better", "refused", "whole", "class"))
            sys.stdout.write(f"| {name} | {trainings} | {' | '.join(texts)} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
