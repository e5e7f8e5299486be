from __future__ import annotations

import numpy as np
import pytest
from raw_cifar import convert_plainly, convert_spec, write_raw_cifar
from small_dataset import drawn, publish_dataset, validation_of

from podline.datasets import census
from podline.datasets.census import COLUMNS, SplitCensus, changes, same_examples
from podline.errors import ArtifactError
from podline.stages.completed import complete
from podline.stages.specs import ValidateResult
from podline.store.opening import open_store


def split(*records: tuple[int, int]) -> SplitCensus:
    """Records as (image, answer)."""
    return np.array([(image, answer, answer, -1) for image, answer in records], COLUMNS)


def test_what_came_went_and_changed_is_told_whatever_the_order():
    before = split((1, 0), (2, 0), (3, 1), (4, 1))
    after = split((4, 1), (3, 2), (1, 0), (5, 0))
    assert changes(before, after) == ([3], [1], [(2, 1)])
    assert changes(before, before) == ([], [], [])
    assert changes(split(), before) == ([0, 1, 2, 3], [], [])


def test_a_record_that_is_there_twice_counts_twice():
    once, twice = split((7, 1), (8, 0)), split((7, 1), (7, 1), (8, 0))
    assert changes(once, twice) == ([1], [], [])
    assert changes(twice, once) == ([], [1], [])
    # One of two equal images is given another class.
    assert changes(twice, split((7, 1), (7, 2), (8, 0))) == ([], [], [(1, 1)])


def test_the_examples_that_two_splits_share_are_paired():
    before, after = split((1, 0), (2, 0), (3, 1), (2, 0)), split((3, 1), (2, 0), (1, 9), (2, 0), (2, 0))
    places = same_examples(before, after)
    assert [found.tolist() for found in places] == [[2, 1, 3], [0, 1, 3]]


def test_a_census_tells_one_pixel_and_one_label_apart(tmp_path):
    splits = {"train": drawn(30, 0), "test": drawn(20, 1)}
    taken = {}
    for name in ("as it was", "pixel", "label"):
        if name == "pixel":
            splits["train"]["image"][7, 0, 0, 0] ^= 1
        if name == "label":
            splits["test"]["label"][3] = (splits["test"]["label"][3] + 1) % 3
        manifest = publish_dataset(tmp_path / name, splits=splits)
        taken[name] = census.take(open_store(tmp_path / name), "datasets/sample/0123456789abcdef", manifest)
    assert changes(taken["as it was"]["train"], taken["pixel"]["train"]) == ([7], [7], [])
    assert changes(taken["as it was"]["test"], taken["pixel"]["test"]) == ([], [], [])
    assert changes(taken["pixel"]["test"], taken["label"]["test"]) == ([], [], [(3, 3)])
    assert taken["label"]["test"]["labels"].tolist() == splits["test"]["label"].tolist()


def test_a_census_of_what_was_validated_is_kept_and_outlives_the_data(tmp_path):
    spec = convert_spec(tmp_path / "root", write_raw_cifar(tmp_path / "raw"))
    manifest = convert_plainly(spec)
    store, folder = open_store(spec.root), f"datasets/cifar10/{manifest.fingerprint}"
    taken = census.census_of(store, "cifar10", manifest.fingerprint)
    assert store.list("ledger") == []
    validated = validation_of(spec.root, "cifar10", manifest.fingerprint)
    complete(store, folder, validated, ValidateResult(records=1, shards=1, duplicates_within=0), [])
    census.census_of(store, "cifar10", manifest.fingerprint)
    for name in store.list(folder):
        store.delete(name)
    kept = census.census_of(store, "cifar10", manifest.fingerprint)
    assert {name: len(part) for name, part in kept.items()} == {"train": 100, "test": 20}
    for name, part in kept.items():
        assert np.array_equal(part, taken[name])


def test_a_damaged_census_is_named(tmp_path):
    store = open_store(tmp_path)
    store.publish_bytes("ledger/data/sample-0123.npz", b"PK and no more")
    with pytest.raises(ArtifactError, match=r"sample-0123\.npz is not a census"):
        census.census_of(store, "sample", "0123")
