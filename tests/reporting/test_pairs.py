"""Two runs on the same examples, whatever order these have in their data sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import small_dataset
from small_dataset import drawn, publish_dataset
from support.guessed import guesses_of

from podline.errors import ArtifactError, StoreError
from podline.kinds.classification.guesses import GUESSES
from podline.kinds.classification.pairs import GuessedPair
from podline.noise import Seeds
from podline.reporting.pairs import Judged, paired
from podline.store.contract import Store
from podline.store.opening import open_store

TEST = drawn(40, 1)
OTHER = "fedcba9876543210"


def judged(store: Store, run: str, labels: np.ndarray, right: np.ndarray, fingerprint: str) -> Judged:
    """A run that got some examples right, with the guesses that its evaluation leaves."""
    guesses = guesses_of(labels, np.where(right, labels, labels + 1))
    store.publish_bytes(f"runs/{run}/{GUESSES}", guesses.to_bytes())
    return Judged(f"runs/{run}", "top1", "sample", fingerprint, "test")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    publish_dataset(tmp_path, splits={"train": drawn(20, 0), "test": TEST})
    return open_store(tmp_path)


def test_each_example_meets_itself_in_another_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    order, right = random.permutation(40), random.random((2, 40)) < 0.6
    monkeypatch.setattr(small_dataset, "FINGERPRINT", OTHER)
    moved = {name: values[order] for name, values in TEST.items()}
    publish_dataset(store.uri, splits={"train": drawn(20, 5), "test": moved})
    before = judged(store, "a", TEST["label"], right[0], "0123456789abcdef")
    pair = paired(store, before, judged(store, "b", moved["label"], right[1][order], OTHER))
    assert isinstance(pair, GuessedPair)
    assert np.array_equal(pair.before.right, right[0][order])
    assert np.array_equal(pair.after.right, right[1][order])
    assert pair.differences({"top1": Seeds(0.0, 1)})["top1"].lost == np.sum(right[0] & ~right[1])


def test_what_cannot_be_paired_says_why(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.ones(40, bool)
    before = judged(store, "a", TEST["label"], right, small_dataset.FINGERPRINT)
    monkeypatch.setattr(small_dataset, "FINGERPRINT", OTHER)
    fewer = {name: values[:-3] for name, values in TEST.items()}
    publish_dataset(store.uri, splits={"train": drawn(20, 0), "test": fewer})
    other = judged(store, "b", fewer["label"], right[:-3], OTHER)
    with pytest.raises(StoreError, match="the test sets differ: 37 of 40 and 37 examples are the same"):
        paired(store, before, other)
    with pytest.raises(StoreError, match="the test sets differ: sample test vs sample train"):
        paired(store, before, before._replace(split="train"))
    with pytest.raises(StoreError, match="nothing to compare: ap vs top1"):
        paired(store, before._replace(measure="ap"), before)
    short = judged(store, "c", TEST["label"][:-1], right[:-1], before.fingerprint)
    with pytest.raises(ArtifactError, match="hold 39 and 40 guesses vs 39 examples"):
        paired(store, before, short)
