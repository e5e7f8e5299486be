from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import small_dataset
from ledger_entries import CLASSES, more_seeds, night, outcome
from scipy.special import ndtri
from small_dataset import drawn, publish_dataset
from support.guessed import guesses_of

from podline.documents.ledger_entry import Entry, Outcome, PromotionSummary, Split
from podline.documents.metric import Metric
from podline.errors import ArtifactError, StoreError
from podline.evaluation.differences import Difference
from podline.intervals import wilson_interval
from podline.kinds.classification.guesses import Guesses
from podline.kinds.classification.pairs import GuessedPair
from podline.noise import Seeds
from podline.reporting.comparison import compare
from podline.reporting.pairs import Judged, moved_parts, paired
from podline.reporting.seed_spread import SeedSpread, spread_among
from podline.store.contract import Store
from podline.store.opening import open_store

LABELS = np.arange(1000) % 10


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path)


def judged(store: Store, number: int, right: np.ndarray, **changes) -> Entry:
    """A night that got some examples right and took the others for the next class, with what its evaluation leaves."""
    folder = f"runs/cifar10-{number:012x}"
    predictions = np.where(right, LABELS, (LABELS + 1) % 10)
    store.publish_bytes(f"{folder}/guesses.npz", guesses_of(LABELS, predictions).to_bytes())
    store.publish_json(f"{folder}/evaluation.json", {"run": number})
    share = float(right.mean())
    made = outcome(
        share,
        examples=len(right),
        metrics={"top1": Metric(value=share, low=share - 0.02, high=share + 0.02)},
        evaluation_sha256=store.sha256(f"{folder}/evaluation.json"),
    )
    data = night().data
    split = {"test": Split(records=len(right), sha256="2" * 64)}
    given = {"data": data.model_copy(update={"splits": split}), "settings": night().settings, **changes}
    return night(number, outcome=made, **given)


def right_but(*wrong: np.ndarray) -> np.ndarray:
    right = np.ones(len(LABELS), bool)
    for places in wrong:
        right[places] = False
    return right


def test_the_same_examples_are_tested_in_pairs_and_a_class_that_fell_is_named(store):
    before = judged(store, 1, right_but(np.arange(0, 100)))
    cat = CLASSES.index("cat")
    cats = np.flatnonzero(cat == LABELS)
    after = judged(store, 2, right_but(np.arange(0, 100), cats[:60]))
    [unknown] = compare(store, [before, after]).verdicts
    assert "may be caused by the seed, whose spread is not known (p = " in unknown.words
    assert "Perhaps moved by the seed: cat −50.0 points" in unknown.words
    more_seeds(store, before)
    found = compare(store, [before, after])
    [verdict] = found.verdicts
    assert verdict.difference.method == "on the same examples; the spread between seeds is that of 6 trainings"
    assert (verdict.difference.gained, verdict.difference.lost) == (0, 50)
    assert verdict.difference.chance == "beyond"
    assert [(part.name, round(part.change, 3)) for part in verdict.parts] == [("cat", -0.5)]
    assert "worse by 5.0 points" in verdict.words
    assert "more than noise" in verdict.words
    assert "cat −50.0 points" in verdict.words
    assert found.differences == ()


def test_other_test_sets_are_not_tested_in_pairs_and_that_is_said(store):
    before = judged(store, 1, right_but())
    data = before.data
    other = data.model_copy(update={"splits": {"test": Split(records=1000, sha256="9" * 64)}, "dataset": "mnist"})
    after = judged(store, 2, right_but(np.arange(50)), data=other)
    [verdict] = compare(store, [before, after]).verdicts
    assert not verdict.difference.paired
    assert verdict.why_unpaired == "the test sets differ: cifar10 test vs mnist test"
    assert verdict.words.endswith(verdict.why_unpaired)


def test_a_run_that_was_judged_again_is_not_taken_for_the_one_of_the_entry(store):
    before, after = judged(store, 1, right_but()), judged(store, 2, right_but())
    store.publish_json(f"runs/{after.run}/evaluation.json", {"run": "another"}, replace=True)
    [verdict] = compare(store, [before, after]).verdicts
    assert not verdict.difference.paired
    assert "is no longer the evaluation of" in verdict.why_unpaired


TEN, EXAMPLES, SHARE = 10, 200, 0.85
ANSWERS = np.repeat(np.arange(TEN), EXAMPLES)
DIGITS = [str(label) for label in range(TEN)]
Right = npt.NDArray[np.bool_]


def trainings(random: np.random.Generator, count: int, times: float) -> list[Right]:
    """Draw which examples trainings of one recipe get right; a seed moves all classes and each one by itself."""
    moved = 0.005 * random.standard_normal((count, 1)) + 0.02 * random.standard_normal((count, TEN))
    shares = np.clip(SHARE + 2 * np.sqrt(SHARE * (1 - SHARE)) * times * moved, 1e-4, 1 - 1e-4)
    easy, luck = (
        1.5 * random.standard_normal((TEN, EXAMPLES)),
        random.standard_normal((count, TEN, EXAMPLES)),
    )
    return [each.ravel() for each in ndtri(shares)[..., None] * np.hypot(1, 1.5) + easy + luck > 0]


def outcome_of(right: Right) -> Outcome:
    parts = {name: wilson_interval(int(right[int(name) == ANSWERS].sum()), EXAMPLES) for name in DIGITS}
    top1 = wilson_interval(int(right.sum()), len(right))
    return outcome(top1.value, examples=len(right), metrics={"top1": top1}, parts=parts)


def guesses(right: Right) -> Guesses:
    return guesses_of(ANSWERS, np.where(right, ANSWERS, (ANSWERS + 1) % TEN))


def compared(known: Sequence[Right], after: Right) -> tuple[Difference, bool]:
    """Compare with the first of the known trainings; also whether a class is said to have moved."""
    spread = SeedSpread([outcome_of(right) for right in known])
    pair = GuessedPair(guesses(known[0]), guesses(after))
    [difference] = pair.differences({"top1": spread.of("top1", spread.known[0].main)}).values()
    return difference, any(part.chance == "beyond" for part in moved_parts(pair, DIGITS, spread))


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
        difference, moved = compared(before, before[0] & (ANSWERS > 1))
        assert (difference.chance, moved) == ("seed", False)
        assert difference.method.endswith("the spread between seeds is assumed")


def entries() -> list[Entry]:
    models = [outcome(0.8 + place / 1000, weights_sha256=f"{place:064x}") for place in range(6)]
    return [night(place, outcome=model) for place, model in enumerate(models)]


def test_what_tells_of_the_spread_is_what_differs_in_the_seed_alone() -> None:
    first, *others = entries()
    other_data = first.data.model_copy(update={"fingerprint": "f" * 16})
    longer = {"recipe": {"seed": 1, "schedule": {"learning_rate": 0.5}}}
    refused = PromotionSummary(verdict="refused", reason="class cat")
    changed = [{"promotion": refused}, {"data": other_data}, {"settings": longer}, {"outcome": first.outcome}, {}]
    told = [first, *(entry.model_copy(update=each) for entry, each in zip(others, changed, strict=True))]
    found = spread_among(told, first, "top1")
    assert [each.main.value for each in found.known] == [0.8, 0.805]
    assert found.of("top1", first.outcome.main).trainings == 2 if first.outcome else None


TEST = drawn(40, 1)
OTHER = "fedcba9876543210"


def judged_run(paired_store: Store, run: str, labels: np.ndarray, right: np.ndarray, fingerprint: str) -> Judged:
    """A run that got some examples right, with the guesses that its evaluation leaves."""
    guesses = guesses_of(labels, np.where(right, labels, labels + 1))
    paired_store.publish_bytes(f"runs/{run}/{Guesses.file}", guesses.to_bytes())
    return Judged(f"runs/{run}", "top1", "sample", fingerprint, "test")


@pytest.fixture
def paired_store(tmp_path: Path) -> Store:
    publish_dataset(tmp_path, splits={"train": drawn(20, 0), "test": TEST})
    return open_store(tmp_path)


def test_each_example_meets_itself_in_another_order(paired_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    order, right = random.permutation(40), random.random((2, 40)) < 0.6
    monkeypatch.setattr(small_dataset, "FINGERPRINT", OTHER)
    moved = {name: values[order] for name, values in TEST.items()}
    publish_dataset(paired_store.uri, splits={"train": drawn(20, 5), "test": moved})
    before = judged_run(paired_store, "a", TEST["label"], right[0], "0123456789abcdef")
    pair = paired(paired_store, before, judged_run(paired_store, "b", moved["label"], right[1][order], OTHER))
    assert isinstance(pair, GuessedPair)
    assert np.array_equal(pair.before.right, right[0][order])
    assert np.array_equal(pair.after.right, right[1][order])
    assert pair.differences({"top1": Seeds(0.0, 1)})["top1"].lost == np.sum(right[0] & ~right[1])


def test_what_cannot_be_paired_says_why(paired_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.ones(40, bool)
    before = judged_run(paired_store, "a", TEST["label"], right, small_dataset.FINGERPRINT)
    monkeypatch.setattr(small_dataset, "FINGERPRINT", OTHER)
    fewer = {name: values[:-3] for name, values in TEST.items()}
    publish_dataset(paired_store.uri, splits={"train": drawn(20, 0), "test": fewer})
    other = judged_run(paired_store, "b", fewer["label"], right[:-3], OTHER)
    with pytest.raises(StoreError, match="the test sets differ: 37 of 40 and 37 examples are the same"):
        paired(paired_store, before, other)
    with pytest.raises(StoreError, match="the test sets differ: sample test vs sample train"):
        paired(paired_store, before, before._replace(split="train"))
    with pytest.raises(StoreError, match="nothing to compare: ap vs top1"):
        paired(paired_store, before._replace(measure="ap"), before)
    short = judged_run(paired_store, "c", TEST["label"][:-1], right[:-1], before.fingerprint)
    with pytest.raises(ArtifactError, match="hold 39 and 40 guesses vs 39 examples"):
        paired(paired_store, before, short)
