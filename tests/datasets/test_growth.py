"""The difference of two versions does not depend on how many records are compared at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from podline.data import record_table
from podline.data.images.opening import Identities
from podline.data.pixels import PixelSums
from podline.data.record_table import RECORDS, RecordTable, write_records
from podline.datasets import growth
from podline.datasets.draft import Written
from podline.documents.shard_table import ShardInfo, ShardTable
from podline.store.folder import FolderStore


def identities(keys: np.ndarray, at_once: int) -> Iterator[Identities]:
    for first in range(0, len(keys), at_once):
        yield Identities(*2 * (keys[first : first + at_once],))


@pytest.mark.parametrize("seed", range(20))
def test_versions_compared_some_rows_at_a_time_equal_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = np.random.default_rng(seed)
    monkeypatch.setattr(record_table, "_AT_ONCE", int(random.integers(1, 40)))
    monkeypatch.setattr(growth, "_ROWS", int(random.integers(1, 40)))
    pixels, base, before = PixelSums(count=1, sums=(0,), squares=(0,)), None, np.empty(0, "S16")
    monkeypatch.setattr(growth, "_statistics", lambda *_: (np.zeros(1, np.int64), pixels))
    for version in range(3):
        drawn = random.integers(0, 256, (50, 16), np.uint8).view("S16").ravel()
        kept = before[random.random(len(before)) < 0.8]
        now = np.sort(np.concatenate([kept, drawn, drawn[:3]]))  # the same image three times twice
        chunks, known = int(random.integers(1, 50)), f"{version:016}"
        source: Any = SimpleNamespace(
            identities=lambda now=now, chunks=chunks: {"train": identities(now, chunks)}, class_names=("cat",), kind=""
        )
        found = growth.growth_of(FolderStore(tmp_path), source, known, base)
        removed = sum((Counter(before.tolist()) - Counter(now.tolist())).values())
        assert found.changes["removed"] + found.changes["relabelled"] == removed
        new = len(found.new["train"])
        assert new == sum((Counter(now.tolist()) - Counter(before.tolist())).values())
        shards = ShardTable.of([ShardInfo(file="a-00000-of-00001", bytes=0, sha256="", records=new)])
        written = {"train": Written(shards, np.zeros(1, np.int64), pixels)}
        [info], sums = found.infos(written)
        path = tmp_path / known / RECORDS
        path.parent.mkdir()
        write_records(path, found.rows(written), sums)
        table = RecordTable(path)
        rows = pa.concat_tables(table.of_split("train"))
        assert rows["key"].to_pylist() == rows["digest"].to_pylist() == [key.ljust(16, b"\0") for key in now.tolist()]
        assert pa.concat_tables(table.ended())["until"].to_pylist().count(known) == removed
        places = list(zip(rows["shard"].to_pylist(), rows["position"].to_pylist(), strict=True))
        assert len(set(places)) == len(places)
        assert {shard.startswith("../") for shard, _ in places} == {bool(version), False}
        split: Any = info
        base = SimpleNamespace(folder=known, fingerprint=known, split=lambda _, split=split: split)
        before = now


def test_a_table_is_read_without_holding_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_table, "_AT_ONCE", 1_000)
    monkeypatch.setattr(record_table, "_ROW_GROUP", 10_000)
    data = np.random.default_rng(0).bytes(160_000)
    keys = pa.array([data[first : first + 16] for first in range(0, 160_000, 16)], pa.binary(16))
    rows = record_table.rows_of({"key": keys, "split": pa.repeat("train", 10_000)})
    path = tmp_path / RECORDS
    write_records(path, [rows] * 30, {})
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for some in RecordTable(path).of_split("train", "key") if len(some)]
    assert len(held) == 300
    assert max(held) < path.stat().st_size / 4
