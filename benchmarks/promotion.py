"""How often promotion is wrong: the rules of :mod:`podline.noise` on models that are drawn.

    python -m benchmarks.promotion
    python -m benchmarks.promotion --lines 100 --world twice

A *line* is 365 nights: a reference with its known trainings, one test split, and a candidate with a new seed each
night. Each example has a difficulty and each answer is a matter of luck on top of it; each training has a shift of its
own in each class, and one in all of them. A *worse* recipe has lost exactly the stated margin, in one class or in the
whole. Prints the table of RESULTS.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from podline.kinds.classification import rules as class_rules
from podline.kinds.classification.guesses import Guesses
from podline.noise import NIGHTS, Floats
from podline.promotion.figure import Figure, ModelCost, Pair, number
from podline.recipes.promotion_settings import PromotionSettings

RULES = PromotionSettings()
# The spread of difficulty; the luck of a single answer has 1. Two trainings then agree about most examples.
_DIFFICULTY = 2.0
_AT_ONCE = 4_000_000
_SLOPE = float(np.hypot(1, _DIFFICULTY))

Random = np.random.Generator


@dataclass(frozen=True)
class World:
    """A task, and what its seeds do.

    Attributes:
        classes: of the test split.
        examples: of each class.
        share: of right answers.
        times: the spread between seeds, as a multiple of what the settings assume.
        tails: degrees of freedom of what a seed does; infinite is normal.
        shared: the part of a class's variance that half of the classes gain while the other half loses.
        copies: how often each example is in the test split.
    """

    classes: int = 10
    examples: int = 1000
    share: float = 0.9
    times: float = 1.0
    tails: float = np.inf
    shared: float = 0.0
    copies: int = 1

    def shifts(self, random: Random, trainings: int) -> npt.NDArray[Any]:
        """Draw what seeds do to each class, (trainings, classes), as a change of the share."""
        of_class = RULES.part_spread * self._drawn(random, trainings, self.classes)
        sides = np.where(np.arange(self.classes) % 2, 1.0, -1.0)
        opposed = RULES.part_spread * sides * self._drawn(random, trainings, 1)
        apart = np.sqrt(1 - self.shared) * of_class + np.sqrt(self.shared) * opposed
        together = RULES.spread * self._drawn(random, trainings, 1)
        return self.times * 2 * np.sqrt(self.share * (1 - self.share)) * (apart + together)

    def answers(self, random: Random, difficulty: Floats, shifts: Floats) -> npt.NDArray[np.bool_]:
        """Draw which examples are right, (trainings, classes, examples)."""
        mean = ndtri(np.clip(self.share + shifts, 1e-6, 1 - 1e-6)) * _SLOPE
        luck = random.standard_normal((*shifts.shape, difficulty.shape[-1]), np.float32)
        return np.repeat(mean[..., None] + difficulty + luck > 0, self.copies, axis=-1)

    def difficulty(self, random: Random) -> Floats:
        """Draw how easy each example is, (classes, distinct examples)."""
        drawn = random.standard_normal((self.classes, self.examples // self.copies), np.float32)
        return (_DIFFICULTY * drawn).astype(np.float64)

    def line(self, random: Random, trainings: int, worse: str, nights: int) -> tuple[int, tuple[float, float]]:
        """Return how many of a line's candidates are promoted, and the margins of the accuracy and of a class.

        Args:
            random: the source of chance.
            trainings: how many are known.
            worse: ``nothing``, ``class``, ``whole``, or ``better``.
            nights: candidates, each with a seed of its own.
        """
        difficulty = self.difficulty(random)
        reference = reference_of(self.answers(random, difficulty, self.shifts(random, trainings)))
        whole, *parts = reference.margins
        by = {
            "nothing": 0.0,
            "whole": -whole,
            "better": whole,
            "class": np.where(np.arange(self.classes) == 0, -parts[0], 0),
        }
        promoted, at_once = 0, max(1, _AT_ONCE // (self.classes * self.examples))
        for start in range(0, nights, at_once):
            shifts = self.shifts(random, min(at_once, nights - start)) + by[worse]
            promoted += int(reference.promoted(self.answers(random, difficulty, shifts)).sum())
        return promoted, (whole, float(np.mean(parts)))

    def _drawn(self, random: Random, *shape: int) -> Floats:
        if np.isinf(self.tails):
            return random.standard_normal(shape)
        return random.standard_t(self.tails, shape) * np.sqrt((self.tails - 2) / self.tails)


@dataclass(frozen=True)
class Reference:
    """A reference with its known trainings, as the rules see it.

    Attributes:
        known: which examples each training got right, (trainings, classes, examples).
        figures: the accuracy and then each class, of the first training as a candidate.
    """

    known: npt.NDArray[np.bool_]
    figures: Sequence[Figure]

    @property
    def margins(self) -> Floats:
        """The margins of the accuracy and of each class."""
        return np.array([each.allowed(len(self.figures), RULES.rate) for each in self.figures])

    def promoted(self, answers: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Decide about candidates, (nights, classes, examples) → (nights,)."""
        by = (answers - self.known.mean(axis=0)).reshape(len(answers), -1)
        groups = [by, *np.split(by, answers.shape[1], axis=1)]
        found = np.ones(len(by), bool)
        for figure, margin, group in zip(self.figures, self.margins, groups, strict=True):
            change, sampled = group.mean(axis=1), group.var(axis=1) / group.shape[1]
            found &= change - figure.noise.room(change, sampled, RULES.rate) >= -margin
        return found


def reference_of(known: npt.NDArray[np.bool_]) -> Reference:
    """Return what the rules look at of known trainings, (trainings, classes, examples)."""
    labels = np.repeat(np.arange(known.shape[1]), known.shape[2])
    names = [str(label) for label in range(known.shape[1])]
    said = [guesses_of(labels, right.ravel()) for right in known]
    pair = Pair("classification", said, said[0], (ModelCost(1, 1), ModelCost(1, 1)), names)
    rules = (class_rules.accuracy, class_rules.classes)
    return Reference(known, [figure for rule in rules for figure in rule(pair, RULES) if isinstance(figure, Figure)])


def guesses_of(labels: npt.NDArray[np.int64], right: npt.NDArray[np.bool_]) -> Guesses:
    """Return the guesses of a classifier, of which only right and wrong count."""
    wrong, none = (~right).astype(np.int64), np.zeros(len(labels))
    return Guesses(labels, labels + wrong, wrong, none, none, np.zeros((len(labels), 0), np.float16))


@dataclass(frozen=True)
class Poses:
    """A pose task: AP is simplified to the mean of how well a network does on each image.

    Attributes:
        images: of the test split. There is one figure, so a *class* is the whole.
        times: the spread between seeds, as a multiple of what the settings assume.
    """

    images: int = 1000
    times: float = 1.0

    def line(self, random: Random, trainings: int, worse: str, nights: int) -> tuple[int, tuple[float, float]]:
        """Return how many of a line's candidates are promoted, and the margin twice; see :meth:`World.line`."""
        easy = random.beta(2, 1, self.images)
        known = self._scores(random, easy, np.zeros(trainings))
        margin = self._figure(known, known[0]).allowed(1, RULES.rate)
        shift = {"nothing": 0.0, "better": margin}.get(worse, -margin)
        found = [self._figure(known, each) for each in self._scores(random, easy, np.full(nights, shift))]
        return sum(each.low(RULES.rate) >= -margin for each in found), (margin, margin)

    def _scores(self, random: Random, easy: Floats, shifts: Floats) -> Floats:
        """Draw how well networks do on each image, (networks, images)."""
        moved = shifts + self.times * RULES.spread * random.standard_normal(len(shifts))
        return easy + moved[:, None] + 0.2 * random.standard_normal((len(shifts), self.images))

    def _figure(self, known: Floats, candidate: Floats) -> Figure:
        variances = float((candidate - known[0]).var() / self.images), float(known[0].var() / self.images)
        values = [*known.mean(axis=1).tolist(), float(candidate.mean())]
        return replace(number("AP", "ap", values, variances, RULES.spread, "auto"), rule="main")


WORLDS: dict[str, World | Poses] = {
    "10 classes of 1,000": World(),
    "10 classes of 100": World(examples=100),
    "2 classes of 200": World(classes=2, examples=200),
    "100 classes of 50": World(classes=100, examples=50, share=0.85),
    "99 % right": World(share=0.99),
    "half the spread": World(times=0.5),
    "twice the spread": World(times=2),
    "heavy tails": World(tails=4),
    "dependent classes": World(shared=0.8),
    "each example twice": World(copies=2),
    "AP of 1,000 images": Poses(),
    "AP, twice the spread": Poses(times=2),
}
TRAININGS = (1, 3, 8)


def row(world: World | Poses, trainings: int, lines: int, seed: int = 0) -> dict[str, float]:
    """Return the rates of a world by the name of the column."""
    random = np.random.default_rng([seed, trainings])
    equal = [world.line(random, trainings, "nothing", 5) for _ in range(4 * lines)]
    better = [world.line(random, trainings, "better", 1)[0] for _ in range(8 * lines)]
    years = {
        worse: [world.line(random, trainings, worse, NIGHTS)[0] > 0 for _ in range(lines)]
        for worse in ("class", "whole")
    }
    return {
        "margin": float(np.mean([margins[0] for _, margins in equal])),
        "margin of a class": float(np.mean([margins[1] for _, margins in equal])),
        "equal": float(np.mean([promoted for promoted, _ in equal])) / 5,
        "better": float(np.mean(better)),
        **{worse: float(np.mean(found)) for worse, found in years.items()},
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How often promotion is wrong, on models that are drawn.")
    parser.add_argument("--lines", type=int, default=200, help="lines of 365 nights in a cell")
    parser.add_argument("--world", default="", help="only worlds whose names contain this")
    given = parser.parse_args()
    sys.stdout.write(
        "| test split | known trainings | margin, of a class | equal: promoted a night | better by the margin: promoted"
        " | worse by it in one class: promoted in a year | in the whole |\n|---|---|---|---|---|---|---|\n"
    )
    for name, world in WORLDS.items():
        for trainings in TRAININGS if given.world in name else ():
            found = row(world, trainings, given.lines)
            margins = " · ".join(dict.fromkeys(f"{100 * found[key]:.1f}" for key in ("margin", "margin of a class")))
            rates = " | ".join(f"{100 * found[key]:.1f} %" for key in ("equal", "better", "class", "whole"))
            sys.stdout.write(f"| {name} | {trainings} | {margins} points | {rates} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
