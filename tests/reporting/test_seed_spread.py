"""The noise of reports and comparisons on trainings that are drawn: seeds and examples, as the ledger tells of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from ledger_entries import night, outcome
from scipy.special import ndtri
from support.guessed import guesses_of

from podline.documents.ledger_entry import Entry, Outcome, PromotionSummary
from podline.evaluation.differences import Difference
from podline.intervals import wilson_interval
from podline.kinds.classification.guesses import Guesses
from podline.kinds.classification.pairs import GuessedPair
from podline.reporting.pairs import moved_parts
from podline.reporting.seed_spread import SeedSpread, spread_among

CLASSES, EXAMPLES, SHARE = 10, 200, 0.85
LABELS = np.repeat(np.arange(CLASSES), EXAMPLES)
NAMES = [str(label) for label in range(CLASSES)]
Right = npt.NDArray[np.bool_]


def trainings(random: np.random.Generator, count: int, times: float) -> list[Right]:
    """Draw which examples trainings of one recipe get right; a seed moves all classes and each one by itself."""
    moved = 0.005 * random.standard_normal((count, 1)) + 0.02 * random.standard_normal((count, CLASSES))
    shares = np.clip(SHARE + 2 * np.sqrt(SHARE * (1 - SHARE)) * times * moved, 1e-4, 1 - 1e-4)
    easy, luck = 1.5 * random.standard_normal((CLASSES, EXAMPLES)), random.standard_normal((count, CLASSES, EXAMPLES))
    return [each.ravel() for each in ndtri(shares)[..., None] * np.hypot(1, 1.5) + easy + luck > 0]


def outcome_of(right: Right) -> Outcome:
    parts = {name: wilson_interval(int(right[int(name) == LABELS].sum()), EXAMPLES) for name in NAMES}
    top1 = wilson_interval(int(right.sum()), len(right))
    return outcome(top1.value, examples=len(right), metrics={"top1": top1}, parts=parts)


def guesses(right: Right) -> Guesses:
    return guesses_of(LABELS, np.where(right, LABELS, (LABELS + 1) % CLASSES))


def compared(known: Sequence[Right], after: Right) -> tuple[Difference, bool]:
    """Compare with the first of the known trainings; also whether a class is said to have moved."""
    spread = SeedSpread([outcome_of(right) for right in known])
    pair = GuessedPair(guesses(known[0]), guesses(after))
    [difference] = pair.differences({"top1": spread.of("top1", spread.known[0].main)}).values()
    return difference, any(part.chance == "beyond" for part in moved_parts(pair, NAMES, spread))


@pytest.mark.parametrize("times", [0.5, 1.0, 2.0])
def test_two_seeds_of_one_recipe_are_rarely_beyond_chance_and_the_interval_covers(times: float) -> None:
    random = np.random.default_rng(1)
    found = [compared(drawn[:-1], drawn[-1]) for drawn in (trainings(random, 21, times) for _ in range(200))]
    covered = np.mean([each.low <= 0 <= each.high for each, _ in found])
    assert 0.93 <= covered <= 0.98
    beyond = [each.chance == "beyond" or moved for each, moved in found]
    assert np.mean(beyond) <= 0.05


def test_of_few_trainings_nothing_is_beyond_chance() -> None:
    random = np.random.default_rng(2)
    for known in (1, 3):
        before = trainings(random, known, 1.0)
        difference, moved = compared(before, before[0] & (LABELS > 1))
        assert (difference.chance, moved) == ("seed", False)
        assert difference.method.endswith("the spread between seeds is assumed")


def entries() -> list[Entry]:
    models = [outcome(0.8 + place / 1000, weights_sha256=f"{place:064x}") for place in range(6)]
    return [night(place, outcome=model) for place, model in enumerate(models)]


def test_what_tells_of_the_spread_is_what_differs_in_the_seed_alone() -> None:
    first, *others = entries()
    assert first.data is not None
    other_data = first.data.model_copy(update={"fingerprint": "f" * 16})
    longer = {"recipe": {"seed": 1, "schedule": {"learning_rate": 0.5}}}
    refused = PromotionSummary(verdict="refused", reason="class cat")
    changed = [{"promotion": refused}, {"data": other_data}, {"settings": longer}, {"outcome": first.outcome}, {}]
    told = [first, *(entry.model_copy(update=each) for entry, each in zip(others, changed, strict=True))]
    found = spread_among(told, first, "top1")
    assert [each.main.value for each in found.known] == [0.8, 0.805]
    assert found.of("top1", first.outcome.main).trainings == 2 if first.outcome else None
