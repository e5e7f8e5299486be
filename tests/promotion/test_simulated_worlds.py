"""The rules on models that are drawn in another way than the benchmark draws them; see simulated_worlds.py."""

from __future__ import annotations

import math

import numpy as np
from simulated_worlds import Line, Task, equal, sliding, years

from podline.recipes.promotion_settings import PromotionSettings

TASK = Task(classes=5)


def test_an_equal_model_is_promoted_and_a_better_one_as_well() -> None:
    for trainings in (1, 4):
        assert equal(TASK, 20, trainings) >= 0.9 - 2 * math.sqrt(0.09 / 20)
    assert equal(TASK, 15, 4, better=True) >= 0.99 - 1 / 15


def test_a_recipe_that_is_worse_by_the_margin_is_rarely_promoted() -> None:
    # Of the 5 % a year, so few nights have next to nothing.
    assert years(TASK, 3, 4, "whole", nights=20) == 0
    assert years(TASK, 3, 1, "class", nights=20) == 0


def test_a_model_ten_points_worse_is_never_promoted_after_sixty_refusals() -> None:
    line = Line(TASK, np.random.default_rng(0), 8)
    assert not any(line.promoted(line.model(0.1)) for _ in range(60))


def test_losses_of_each_night_never_add_up_beyond_the_margin() -> None:
    lost, margin = sliding(TASK, 1)
    assert lost <= margin


def test_the_margin_of_a_large_split_is_about_two_points() -> None:
    settings = PromotionSettings(spread=0.0033, part_spread=0.005)
    line = Line(Task(examples=1000, share=0.9, spread=(0.01, 0.02), settings=settings), np.random.default_rng(1), 8)
    assert line.margins()[0] <= 0.022
