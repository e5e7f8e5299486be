"""The stated share of wrong labels among suspects is the true one, and none are expected where there are none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("cleanlab", reason="podline[suspects] is not installed")

from podline.suspects.precision import judged, swapped

Floats = npt.NDArray[np.float64]
CLASSES = 10


def believed(count: int, seed: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """True labels, and probabilities of a model that is right nine times of ten, and as sure as it is right."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 1.5, (count, CLASSES)) + 6 * np.eye(CLASSES)[random.integers(0, CLASSES, count)]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = odds / odds.sum(axis=1, keepdims=True)
    drawn = (probabilities.cumsum(axis=1) > random.random((count, 1))).argmax(axis=1)
    return drawn, probabilities


def flipped(
    labels: npt.NDArray[np.int64], share: float, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    random = np.random.default_rng(seed)
    wrong = np.zeros(len(labels), np.bool_)
    wrong[random.choice(len(labels), round(share * len(labels)), replace=False)] = True
    return np.where(wrong, (labels + random.integers(1, CLASSES, len(labels))) % CLASSES, labels), wrong


def test_the_stated_precision_covers_the_true_one() -> None:
    covered = 0
    for seed in range(6):
        labels, probabilities = believed(4000, seed)
        given, wrong = flipped(labels, 0.02, 100 + seed)
        found = judged(given, probabilities, 0.8)
        assert found.precision is not None
        assert found.precision.value >= 0.8
        assert len(found.suspects) > 10
        covered += found.precision.low <= wrong[found.suspects].mean() <= found.precision.high
        assert found.expected.low <= 80 * 1.3
        assert found.expected.high >= 80 * 0.7
    assert covered >= 5  # of intervals of 95 %


def test_in_clean_sets_none_are_expected() -> None:
    for seed in range(4):
        found = judged(*believed(3000, 50 + seed), 0.8)
        assert found.precision is None
        assert not len(found.suspects)
        assert found.expected.low <= 6


def test_a_lower_precision_gives_a_longer_list_that_begins_alike() -> None:
    labels, probabilities = believed(4000, 9)
    given, _ = flipped(labels, 0.02, 9)
    short, long = (judged(given, probabilities, share).suspects for share in (0.9, 0.5))
    assert len(short) < len(long)
    assert long[: len(short)].tolist() == short.tolist()


def test_canaries_have_another_label_each_time_the_same_one() -> None:
    labels = np.arange(1000) % CLASSES
    canaries = swapped(labels, CLASSES)
    assert (canaries != labels).all()
    assert canaries.tolist() == swapped(labels, CLASSES).tolist()
    assert np.bincount(canaries, minlength=CLASSES).min() > 60
