"""Promoted, refused, undecided: how often each is wrong, on models that are drawn; ``simulated.py`` draws more."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from drawn_models import CLASSES, LABELS, RULES, SAME, Models, standing
from simulated import SPLITS, Split, cell, drawn, figures, verdicts

from podline.documents.promotion import Check, advice
from podline.evaluation.guesses import Guesses
from podline.promotion.chance import Fall
from podline.promotion.margins import ENOUGH_PEERS, Figure, Noise, VerdictRates, margin_of, noise_of, share_below
from podline.promotion.rules import checks_of
from podline.promotion.standings import paired_classes


def _at_most(rate: float, draws: int) -> float:
    """What a share that is this rate is below in all but one of a thousand simulations."""
    return rate + 3.1 * math.sqrt(rate / draws)


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize("known", [3, 10])
def test_equal_models_are_promoted_and_models_worse_by_the_margin_are_not(split: Split, known: int) -> None:
    draws = 200 if split.parts > 20 else 600
    promoted, refused = cell(split, known, None, draws)
    assert promoted >= 0.9 - 3.1 * math.sqrt(0.1 * 0.9 / draws)
    assert refused <= _at_most(RULES.rate, draws)
    for worse in (1, 2, split.parts):
        assert cell(split, known, worse, draws)[0] <= _at_most(RULES.wrong_rate, draws)


@pytest.mark.parametrize("known", [1, 2])
def test_while_too_few_trainings_are_known_no_model_that_is_worse_is_promoted(known: int) -> None:
    for split in (Split(10, 100), Split(10, 1000), Split(100, 5)):
        assert [cell(split, known, worse, 300)[0] for worse in (1, 2, split.parts)] == pytest.approx(
            [0, 0, 0], abs=0.02
        )


def test_trainings_that_differ_far_more_than_is_assumed_are_mostly_undecided() -> None:
    split = SPLITS["10 classes of 100"]
    promoted, refused = cell(split, 5, None, 600, spread=0.1)
    assert promoted < 0.5
    assert refused <= _at_most(RULES.rate, 600)
    assert cell(split, 5, 1, 600, spread=0.1)[0] <= _at_most(RULES.wrong_rate, 600)


def test_what_is_simulated_is_what_the_rules_decide() -> None:
    random, split = np.random.default_rng(3), Split(12, 50)
    models = drawn(random, split, 60, 4, split.right(1, 4) + 0.12 * (np.arange(12) == 0), RULES.part_spread)
    simulated, seen = verdicts(split, models), set[str]()
    for draw in range(60):
        peers = [figures(split, counts) for counts in models.known[draw]]
        checks = checks_of(figures(split, models.candidate[draw]), peers, None, SAME, RULES)
        refused, shown = any(check.refused for check in checks), all(check.shown for check in checks)
        assert (refused, shown and not refused) == (simulated.refused[draw], simulated.promoted[draw])
        seen.add("refused" if refused else "promoted" if shown else "undecided")
    assert seen == {"promoted", "refused", "undecided"}


def test_the_margin_is_the_settings_where_examples_show_that_much_and_else_what_they_show() -> None:
    rates = VerdictRates(0.05, 0.05, 12)
    many, few = noise_of(10**7, 0.001), noise_of(5, 0.02)
    assert margin_of(many, 0.05, rates) == 0.05
    assert margin_of(many, 0.0, rates) < 0.01
    assert share_below(0.9, margin_of(few, 0.05, rates)) < 0.1
    assert share_below(0.05, 1.5) == 0
    # More classes to look at, a wider margin; a lower rate of wrong promotions, too.
    assert margin_of(few, 0.05, rates._replace(figures=102)) > margin_of(few, 0.05, rates)
    assert margin_of(few, 0.05, rates._replace(promoted=0.01)) > margin_of(few, 0.05, rates)


def worse_by(models: Models, falls: dict[int, float]) -> Guesses:
    """A training that loses so many points in some classes."""
    found = models.trained()
    chance = np.zeros(len(LABELS))
    for label, by in falls.items():
        chance[label == LABELS] = by / found.right[label == LABELS].mean()
    missed = models.random.uniform(size=len(LABELS)) < chance
    return replace(found, predictions=np.where(missed, -1, found.predictions))


def judged(candidate: Guesses, peers: list[Guesses]) -> list[Check]:
    paired = paired_classes(peers[0], candidate, CLASSES, RULES) if len(peers) < ENOUGH_PEERS else None
    return checks_of(standing(candidate), [standing(peer) for peer in peers], paired, SAME, RULES)


def is_promoted(checks: list[Check]) -> bool:
    return all(check.shown and not check.refused for check in checks)


@pytest.mark.parametrize(
    "falls",
    [{2: 0.4, 7: 0.4}, {2: 0.25, 7: 0.25}, dict.fromkeys(range(10), 0.02)],
    ids=["40 in two", "25 in two", "2 in all"],
)
def test_with_one_training_known_a_fall_that_hides_behind_the_seed_is_not_promoted(falls: dict[int, float]) -> None:
    for seed in range(30):
        models = Models(seed, spread=0.02)
        champion = models.trained()
        assert not is_promoted(judged(worse_by(models, falls), [champion]))


def test_with_one_training_known_a_model_that_is_far_better_is_promoted() -> None:
    for seed in range(10):
        models = Models(seed, spread=0.02)
        poor = worse_by(models, dict.fromkeys(range(10), 0.3))
        assert is_promoted(judged(models.trained(), [poor]))


def test_what_is_undecided_is_told_with_what_would_decide() -> None:
    models = Models(4, spread=0.02)
    line = [models.trained() for _ in range(4)]
    [check] = [check for check in judged(models.trained(), line[:1]) if check.rule == "main"]
    assert check.undecided
    assert "not shown to be within the margin of 0." in check.message
    assert advice([check]) == "2 more trainings of the champion's recipe"
    found = set[str]()
    for seed in range(20):
        models = Models(seed, spread=0.02)
        line = [models.trained() for _ in range(4)]
        checks = [check for check in judged(worse_by(models, {3: 0.14}), line) if check.undecided]
        found |= {re.sub("[0-9]+", "N", way) for check in checks for way in advice([check]).split(" or ")}
    assert "N more trainings of the champion's recipe" in found
    assert "N more test examples of class class N" in found


def test_more_known_trainings_and_more_examples_decide_as_they_are_said_to() -> None:
    split = Split(10, 100)
    rates = split.rates
    scale = noise_of(100, RULES.part_spread)
    # So near the margin that it is not shown, and too near the champion to be refused.
    figure = Figure(Fall(0.15, scale.usual, 3), lambda times: noise_of(100 * times, RULES.part_spread), 0.05)
    more, times = figure.more_trainings(rates), figure.more_examples(rates)
    assert more is not None
    assert times is not None

    def decided(fall: Fall, noise: Noise) -> bool:
        within = fall.chance_within(margin_of(noise, 0.05, rates), noise.most) < rates.promoted
        return within or fall.chance() < rates.refused / rates.figures

    by_peers = [decided(figure.fall._replace(peers=3 + each), scale) for each in range(more + 1)]
    assert by_peers == [False] * more + [True]
    many = noise_of(100 * times, RULES.part_spread)
    assert decided(Fall(0.15, many.usual, 3), many)
