"""Shard plans: tables for the rule, properties for the rest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podline.base.errors import SettingsError, SourceError
from podline.data.planning import ShardPlans, SplitPlan, plan_shards, shard_count

CIFAR = 3126  # bytes of a record in a file


@pytest.mark.parametrize(
    ("records", "frame", "shard_bytes", "min_shards", "shards"),
    [
        (50_000, CIFAR, 100_000_000, 10, 10),  # 156 MB: two would do, ten keep 15 MB each
        (1_017, CIFAR, 100_000_000, 10, 3),  # 3.2 MB: three of 1 MB
        (640, CIFAR, 100_000_000, 10, 2),  # twice 320 · 3126 B = 1.0003 MB
        (639, CIFAR, 100_000_000, 10, 1),
        (1, CIFAR, 100_000_000, 10, 1),
        (500_000, CIFAR, 100_000_000, 10, 16),  # 1.56 GB
        (100, CIFAR, CIFAR, 10, 100),  # a record a shard
        (101, CIFAR, 20 * CIFAR, 1, 6),
    ],
)
def test_number_of_shards(records: int, frame: int, shard_bytes: int, min_shards: int, shards: int) -> None:
    assert shard_count(records, frame, shard_bytes, min_shards) == shards


def test_names_and_order() -> None:
    plans = plan_shards("mnist", {"train": 11, "test": 4}, 100, shard_bytes=400, min_shards=1)
    assert [(plan.file, plan.first, plan.records) for plan in plans] == [
        ("mnist-train.tfrecord-00000-of-00003", 0, 3),
        ("mnist-train.tfrecord-00001-of-00003", 3, 4),
        ("mnist-train.tfrecord-00002-of-00003", 7, 4),
        ("mnist-test.tfrecord-00000-of-00001", 0, 4),
    ]


def test_names_of_many_shards_are_in_the_order_of_their_numbers() -> None:
    names = [plan.file for plan in ShardPlans("x", (SplitPlan("train", 100_000, 100_000),))]
    assert names == sorted(names)
    assert names[77] == "x-train.tfrecord-000077-of-100000"


@settings(deadline=None)  # a busy machine is no bug
@given(
    records=st.integers(1, 3_000),
    frame=st.integers(17, 200_000),
    shard_bytes=st.integers(200_000, 100_000_000),
    min_shards=st.integers(1, 64),
)
def test_shards_cover_a_split_once_and_keep_every_limit(
    records: int, frame: int, shard_bytes: int, min_shards: int
) -> None:
    plans = plan_shards("x", {"train": records}, frame, shard_bytes=shard_bytes, min_shards=min_shards)
    sizes = [plan.records for plan in plans]
    assert [plan.first for plan in plans] == np.cumsum([0, *sizes[:-1]]).tolist()
    assert sum(sizes) == records
    assert 1 <= min(sizes) <= max(sizes) <= min(sizes) + 1
    assert max(sizes) * frame <= shard_bytes
    if len(plans) < min_shards:  # one more would leave one below 1 MB
        assert records // (len(plans) + 1) * frame < 1_000_000


def test_an_empty_split_or_a_record_that_fits_no_shard_is_an_error() -> None:
    with pytest.raises(SettingsError, match=r"shard_bytes=3125 vs 3126 bytes of one record; raise shard_bytes"):
        shard_count(10, CIFAR, CIFAR - 1, 1)
    with pytest.raises(SourceError, match="the split 'test' has no records"):
        plan_shards("x", {"train": 10, "test": 0}, 100, shard_bytes=1000, min_shards=1)
