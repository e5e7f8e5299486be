from __future__ import annotations

import re

import numpy as np
import pytest
from ledger_entries import CLASSES, more_seeds, night, outcome
from raw_cifar import convert_plainly, convert_spec, write_raw_cifar
from support.guessed import guesses_of

from podline.documents.ledger_entry import Entry, Split
from podline.documents.metric import Metric
from podline.ledger.recording import data_of
from podline.reporting.comparison import compare, lines
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
    assert data is not None
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
    assert verdict.difference is not None
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
    assert data is not None
    other = data.model_copy(update={"splits": {"test": Split(records=1000, sha256="9" * 64)}, "dataset": "mnist"})
    after = judged(store, 2, right_but(np.arange(50)), data=other)
    [verdict] = compare(store, [before, after]).verdicts
    assert verdict.difference is not None
    assert not verdict.difference.paired
    assert verdict.why_unpaired == "the test sets differ: cifar10 test vs mnist test"
    assert verdict.words.endswith(verdict.why_unpaired)


def test_a_run_that_was_judged_again_is_not_taken_for_the_one_of_the_entry(store):
    before, after = judged(store, 1, right_but()), judged(store, 2, right_but())
    store.publish_json(f"runs/{after.run}/evaluation.json", {"run": "another"}, replace=True)
    [verdict] = compare(store, [before, after]).verdicts
    assert verdict.difference is not None
    assert not verdict.difference.paired
    assert "is no longer the evaluation of" in verdict.why_unpaired


def test_a_run_without_a_result_is_told_by_what_it_lacks(store):
    before, after = judged(store, 1, right_but()), night(2, state="failed")
    [verdict] = compare(store, [before, after]).verdicts
    assert verdict.difference is None
    assert "this run has no evaluation" in verdict.words


def test_several_runs_are_held_against_the_first(store):
    runs = [judged(store, number, right_but(np.arange(10 * number))) for number in range(4)]
    found = compare(store, runs)
    assert [verdict.run for verdict in found.verdicts] == [run.name for run in runs[1:]]
    assert {len(values) for values in found.results.values()} == {4}
    text = lines(found)
    assert text[0] == "settings, data, code and environment are the same"
    assert sum("worse by" in line for line in text) == 3


def test_one_relabelled_image_of_a_raw_data_set_is_all_that_differs(store, tmp_path):
    source, entries = write_raw_cifar(tmp_path / "raw"), []
    for number in range(2):
        manifest = convert_plainly(convert_spec(tmp_path, source))
        entries.append(night(number, settings=night().settings, data=data_of(manifest)))
        batch = np.fromfile(source / "data_batch_2.bin", np.uint8).reshape(-1, 3073)
        batch[3, 0] = (batch[3, 0] + 1) % 10
        batch.tofile(source / "data_batch_2.bin")
    [row] = compare(store, entries).differences
    assert (row.area, row.name, row.values[0]) == ("data", "train", "100 records")
    assert re.fullmatch(r"1 relabelled \(train\[\d+\] \w+ → \w+\)", row.values[1])
