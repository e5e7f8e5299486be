"""Writing one shard."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from raw_cifar import write_raw_cifar
from small_dataset import encoded, filled_from

from podline.base.arrays import Arrays
from podline.base.errors import StoreError
from podline.data import shards
from podline.data.order import shuffled
from podline.data.pixels import pixel_sums
from podline.data.planning import ShardPlan, plan_shards
from podline.data.records import layout_of
from podline.data.shards import write_shard
from podline.data.sources.opening import open_source
from podline.documents.feature import Feature
from podline.store import digests

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


def test_a_full_disk_is_one_clear_line() -> None:
    with pytest.raises(StoreError, match=r"^cannot write /dev/full: no space left on the device; free some"):
        write(Path("/dev/full"))


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
