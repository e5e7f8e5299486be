"""Shards cover a split once within every limit, and are the same bytes whoever writes them."""

from __future__ import annotations

import pickle
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_cifar import write_raw_cifar
from small_dataset import encoded, filled_from

from podline.base.arrays import Arrays
from podline.base.errors import SettingsError, SourceError, StoreError
from podline.data import shards
from podline.data.order import shuffled
from podline.data.pixels import pixel_sums
from podline.data.planning import ShardPlan, ShardPlans, SplitPlan, plan_shards, shard_count
from podline.data.raw_arrays import FilePart, write_parts
from podline.data.record_table import publish_records, rows_of
from podline.data.records import layout_of
from podline.data.shards import write_shard
from podline.data.sources.opening import open_source
from podline.documents.feature import Feature
from podline.store import digests
from podline.store.opening import open_store

LAYOUT = layout_of([Feature("image", "uint8", (32, 32, 3)), Feature("label", "int64", ())])
PLAN = ShardPlan("train", "shard", 0, 50)


def columns(count: int = 50) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {"image": random.integers(0, 256, (count, 32, 32, 3), np.uint8), "label": random.integers(0, 10, count)}


def census(records: Arrays) -> np.ndarray:
    return np.bincount(records["label"], minlength=10)


def write(path: Path) -> shards.WrittenShard:
    values = columns()
    read = lambda start, stop: {name: v[start:stop] for name, v in values.items()}  # noqa: E731
    return write_shard(path, PLAN, LAYOUT, census, filled_from(LAYOUT, read))


@pytest.mark.parametrize("chunk_bytes", [1, 7 * LAYOUT.frame_length])
def test_the_file_is_the_same_whatever_the_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(shards, "CHUNK_BYTES", chunk_bytes)
    written, values = write(tmp_path / "shard"), columns()
    assert (tmp_path / "shard").read_bytes() == encoded(LAYOUT, values).tobytes()
    assert written.info.bytes == (tmp_path / "shard").stat().st_size
    assert written.info.sha256 == digests.of_file(tmp_path / "shard")
    assert written.info.class_counts == tuple(np.bincount(values["label"], minlength=10).tolist())
    assert written.pixels == pixel_sums(values["image"])


def test_workers_make_the_records_of_the_order(tmp_path: Path) -> None:
    source = open_source("cifar10", str(write_raw_cifar(tmp_path / "raw")), tmp_path / "cache").in_order(3)
    files = [tmp_path / "raw" / f"data_batch_{number}.bin" for number in range(1, 6)]
    rows = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 3073) for file in files])
    plans = plan_shards("cifar10", source.sizes, LAYOUT.frame_length, shard_bytes=50_000, min_shards=1)
    filler, tables = source.shard_tables(plans, tmp_path)
    assert [table.name for table in tables] == ["train.npy", "test.npy"]
    train = [plan for plan in plans if plan.split == "train"]
    for plan in train:
        fill = pickle.loads(pickle.dumps(filler)).filler(plan, LAYOUT, tmp_path / filler.table(plan))
        write_shard(tmp_path / plan.file, plan, LAYOUT, census, fill)
    frames = np.frombuffer(b"".join((tmp_path / plan.file).read_bytes() for plan in train), np.uint8).reshape(100, -1)
    expected = rows[shuffled(3, "shards/train", 100, np.arange(100))]
    assert (LAYOUT.values(frames, "label") == expected[:, 0]).all()
    assert (LAYOUT.values(frames, "image") == expected[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)).all()


def test_what_travels_is_small_whatever_the_number_of_records_and_shards(tmp_path: Path) -> None:
    source = open_source("cifar10", str(write_raw_cifar(tmp_path / "raw", train=2000)), tmp_path / "cache")
    plans = plan_shards("x", {"train": 10**9}, 3126, shard_bytes=3_126_000, min_shards=1)
    assert plans[999_999] == ShardPlan("train", "x-train.tfrecord-0999999-of-1000000", 999_999_000, 1000)
    filler, tables = source.shard_tables(plans, tmp_path)
    assert len(pickle.dumps((filler, plans))) < 3_000  # six files' names, above all
    assert max(table.stat().st_size for table in tables) < 2000 * 9 + 500


CIFAR = 3126  # bytes of a record in a file


@pytest.mark.parametrize(
    ("records", "frame", "shard_bytes", "min_shards", "shards"),
    [
        (50_000, CIFAR, 100_000_000, 10, 10),  # 156 MB: two would do, ten keep 15 MB each
        (640, CIFAR, 100_000_000, 10, 2),  # twice 320 · 3126 B = 1.0003 MB
        (639, CIFAR, 100_000_000, 10, 1),
        (100, CIFAR, CIFAR, 10, 100),  # a record a shard
        (101, CIFAR, 20 * CIFAR, 1, 6),
    ],
)
def test_number_of_shards(records: int, frame: int, shard_bytes: int, min_shards: int, shards: int) -> None:
    assert shard_count(records, frame, shard_bytes, min_shards) == shards


def test_names_are_in_the_order_of_the_shards() -> None:
    plans = plan_shards("mnist", {"train": 11, "test": 4}, 100, shard_bytes=400, min_shards=1)
    assert [(plan.file, plan.first, plan.records) for plan in plans] == [
        ("mnist-train.tfrecord-00000-of-00003", 0, 3),
        ("mnist-train.tfrecord-00001-of-00003", 3, 4),
        ("mnist-train.tfrecord-00002-of-00003", 7, 4),
        ("mnist-test.tfrecord-00000-of-00001", 0, 4),
    ]
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
    with pytest.raises(SettingsError, match=r"shard_bytes=3125 is less than the 3126 bytes of a record; raise shard_b"):
        shard_count(10, CIFAR, CIFAR - 1, 1)
    with pytest.raises(SourceError, match="the split 'test' has no records"):
        plan_shards("x", {"train": 10, "test": 0}, 100, shard_bytes=1000, min_shards=1)


@pytest.mark.parametrize("number", [0, 1])
def test_a_full_disk_is_an_error_of_the_disk(tmp_path: Path, number: int) -> None:
    def read(_path: Path) -> list[FilePart]:
        return [FilePart(np.zeros((1, 9, 9, 3), np.uint8), ["cat"])]

    rows = rows_of({"split": "train", "position": pa.array(range(99))})
    write = (
        lambda: write_parts(read, [tmp_path], tmp_path),
        lambda: publish_records(open_store(tmp_path / "root"), "datasets/a/b", rows, {}),
    )[number]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))  # of a file: less than a buffer
    try:
        with pytest.raises(StoreError, match=r"cannot write .*(pixels|records\.parquet)"):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
