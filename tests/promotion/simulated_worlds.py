"""An independent simulation of the rules of promotion: models drawn in another way than benchmarks/promotion.py.

    PYTHONPATH=.:tests:tests/support python tests/promotion/simulated_worlds.py [LINES]

An example is right with a probability of its own; a seed moves the odds of groups of classes and of single classes.
The rules are called through their public function alone. Prints each rate with the number of lines.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from support.guessed import guesses_of

from podline.documents.promotion import Check
from podline.kinds.classification.guesses import Guesses
from podline.promotion.figure import ModelCost, Pair
from podline.promotion.rules import checks_of
from podline.recipes.promotion_settings import PromotionSettings

SAME = (ModelCost(1, 1), ModelCost(1, 1))
NIGHTS = 365


@dataclass(frozen=True)
class Task:
    """A test split, and what a seed does.

    Attributes:
        classes: how many.
        examples: of each.
        share: of right answers.
        spread: of seeds, in the odds of all classes of a group, and of each class by itself.
        groups: classes of a group move together.
        settings: the rules.
    """

    classes: int = 10
    examples: int = 60
    share: float = 0.85
    spread: tuple[float, float] = (0.04, 0.12)
    groups: int = 3
    settings: PromotionSettings = PromotionSettings()  # noqa: RUF009 (frozen)


class Line:
    """A reference with known trainings, and candidates on the same test examples."""

    def __init__(self, task: Task, random: np.random.Generator, trainings: int) -> None:
        self.task, self.random = task, random
        self.labels = np.repeat(np.arange(task.classes), task.examples)
        # Odds of uniform chances squeezed to the ends: some examples are easy, some hard, few between.
        self._easy = 2.5 * np.log(1 / random.uniform(0.02, 0.98, (task.classes, task.examples)) - 1)
        self._grid = np.linspace(-15, 15, 601)
        self._shares = (1 / (1 + np.exp(-(self._grid[:, None, None] + self._easy)))).mean(axis=2)
        self.names = [f"c{label}" for label in range(task.classes)]
        self.known = [self.model() for _ in range(trainings)]

    def model(self, worse: float = 0.0, label: int | None = None) -> Guesses:
        """Train a model whose recipe is worse by a share of right answers, in a class or in all of them."""
        task, random = self.task, self.random
        group, single = task.spread
        moved = group * random.standard_normal(task.groups)[np.arange(task.classes) % task.groups]
        moved = moved + single * random.laplace(size=task.classes) / np.sqrt(2)
        target = np.full(task.classes, task.share)
        target[slice(None) if label is None else label] -= worse
        odds = [np.interp(share, self._shares[:, place], self._grid) for place, share in enumerate(target)]
        chances = 1 / (1 + np.exp(-(np.array(odds) + moved)[:, None] - self._easy))
        right: npt.NDArray[np.bool_] = (random.random(chances.shape) < chances).ravel()
        return guesses_of(
            self.labels, np.where(right, self.labels, (self.labels + 1) % task.classes), float(chances.mean())
        )

    def checks(self, candidate: Guesses) -> list[Check]:
        """Return what the rules say."""
        pair = Pair("classification", self.known, candidate, SAME, self.names)
        return checks_of(pair, self.task.settings)

    def promoted(self, candidate: Guesses) -> bool:
        """Whether a candidate becomes the champion."""
        return all(check.shown and not check.refused for check in self.checks(candidate))

    def margins(self) -> tuple[float, float]:
        """The margins of the accuracy and of the first class, as the rules state them."""
        checks = self.checks(self.model())
        [whole] = [check.margin for check in checks if check.rule == "main"]
        return whole or 0.0, next(check.margin or 0.0 for check in checks if check.rule == "class")


def years(task: Task, lines: int, trainings: int, where: str, nights: int = NIGHTS) -> float:
    """Return the share of lines in which a recipe that is worse by the margin is promoted at least once."""
    random, found = np.random.default_rng([3, trainings]), 0
    for _ in range(lines):
        line = Line(task, random, trainings)
        whole, part = line.margins()
        worse, label = (whole, None) if where == "whole" else (part, 0)
        found += any(line.promoted(line.model(worse, label)) for _ in range(nights))
    return found / lines


def equal(task: Task, lines: int, trainings: int, better: bool = False) -> float:
    """Return the share of first nights on which an equal model is promoted, or one that is better by the margin."""
    random, found = np.random.default_rng([4, trainings]), 0
    for _ in range(lines):
        line = Line(task, random, trainings)
        found += line.promoted(line.model(-min(line.margins()[0], 0.99 - task.share) if better else 0.0))
    return found / lines


def sliding(task: Task, lines: int, nights: int = 60, each: float = 0.003) -> tuple[float, float]:
    """Let candidates fall a little each night, as code or data change.

    Returns:
        The largest loss of a champion against the reference, and the margin, in the line that comes closest to it.
    """
    random, worst = np.random.default_rng(5), (0.0, 1.0)
    for _ in range(lines):
        line = Line(task, random, 3)
        margin, lost = line.margins()[0], 0.0
        for night in range(1, nights + 1):
            candidate = line.model(each * night)
            checks = line.checks(candidate)
            lost = each * night if all(check.shown and not check.refused for check in checks) else lost
        worst = max(worst, (lost, margin), key=lambda each: each[0] / each[1])
    return worst


def main(lines: int) -> None:
    """Print the rates."""
    task = Task()
    for trainings in (1, 4):
        said = [f"{where} {100 * years(task, lines, trainings, where):.1f} %" for where in ("whole", "class")]
        sys.stdout.write(
            f"{trainings} trainings, {lines} lines, worse by the margin: {', '.join(said)} promoted a year\n"
        )
        found = 100 * equal(task, 10 * lines, trainings), 100 * equal(task, 10 * lines, trainings, better=True)
        sys.stdout.write(f"  equal {found[0]:.1f} %, better {found[1]:.1f} % promoted on the first night\n")
        sys.stdout.flush()
    lost, margin = sliding(task, max(2, lines // 4))
    sys.stdout.write(f"0.3 points worse each night: at most {100 * lost:.1f} points lost, margin {100 * margin:.1f}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
