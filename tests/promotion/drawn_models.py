"""Trainings of one recipe that are drawn, example by example; see test_rules.py and test_verdicts.py."""

from __future__ import annotations

import numpy as np

from podline.evaluation.guesses import Guesses
from podline.promotion.chance import Share, spread_of
from podline.promotion.rules import ModelCost, ModelFigures
from podline.recipes.promotion_settings import PromotionSettings

CLASSES = tuple(f"class {label}" for label in range(10))
PER_CLASS = 100
LABELS = np.repeat(np.arange(len(CLASSES)), PER_CLASS)
SAME = (ModelCost(1000, 1000), ModelCost(1000, 1000))
RULES = PromotionSettings()


class Models:
    """Trainings of one recipe: each example has its own chance to be right, and each training of each class a shift."""

    def __init__(self, seed: int, spread: float) -> None:
        self.random = np.random.default_rng(seed)
        # Most examples are easy, and some are a matter of luck: about 9 of 10 are right.
        self.rates = np.where(
            self.random.uniform(size=len(LABELS)) < 0.75, 0.99, self.random.uniform(0.3, 1, len(LABELS))
        )
        self.spread = spread

    def trained(self, worse: int | None = None, by: float = 0.0) -> Guesses:
        """One more; the share of right answers of one class may be lower on purpose."""
        shift = np.array([spread_of(self.spread, 0.9) * self.random.standard_normal() for _ in CLASSES])
        rates = np.clip(self.rates + shift[LABELS], 0, 1)
        if worse is not None:
            rates = np.where(worse == LABELS, rates * (1 - by / rates[worse == LABELS].mean()), rates)
        right = self.random.uniform(size=len(LABELS)) < rates
        confidence = np.clip(self.rates, 0.5, 1)
        return Guesses(LABELS, np.where(right, LABELS, (LABELS + 1) % len(CLASSES)), confidence, confidence)


def standing(guesses: Guesses, calibration_error: float = 0.03) -> ModelFigures:
    parts = {name: Share(float(guesses.right[label == LABELS].mean()), PER_CLASS) for label, name in enumerate(CLASSES)}
    return ModelFigures("run", "accuracy", Share(float(guesses.right.mean()), len(LABELS)), parts, calibration_error)
