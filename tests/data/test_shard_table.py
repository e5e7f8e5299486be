"""The shards of a manifest as a table, also a million of them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from podline.cli import cli
from podline.documents.manifest import FieldInfo, FileInfo, Manifest, SplitInfo, publish_manifest, read_manifest
from podline.documents.shard_table import ShardInfo, ShardTable
from podline.store.opening import open_store

MANY = 1_000_000


def shard(number: int, *, indexed: bool = False, counts: tuple[int, ...] = ()) -> ShardInfo:
    file = f"x-train.tfrecord-{number:05d}-of-00003"
    index = FileInfo(file=f"{file}.index.npy", bytes=200 + number, sha256="00" * 31 + "01") if indexed else None
    return ShardInfo(
        file=file, bytes=5_000_000_000, sha256="ab" * 31 + "00", records=7, class_counts=counts, index=index
    )


@pytest.mark.parametrize(("indexed", "counts"), [(False, ()), (True, ()), (False, (3, 4)), (True, (0, 7))])
def test_a_table_holds_what_was_put_in(indexed: bool, counts: tuple[int, ...]) -> None:
    shards = [shard(number, indexed=indexed, counts=counts) for number in range(3)]
    table = ShardTable.from_json(json.loads(json.dumps(ShardTable.of(shards).to_json())))
    assert [*table] == shards
    assert table[-1] == shards[2]
    assert (table.records, table.bytes) == (21, 15_000_000_000)
    assert table == ShardTable.of(shards)
    assert table != ShardTable.of(shards[:2])


def test_a_table_of_no_shards() -> None:
    assert [*ShardTable.from_json(ShardTable.of([]).to_json())] == []


@pytest.mark.parametrize(
    ("second", "said"),
    [(shard(2), "shard 1 is .*-00002-of.* vs .*-00001-of"), (shard(1, indexed=True), "differs from")],
)
def test_shards_that_are_no_table(second: ShardInfo, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ShardTable.of([shard(0), second])


@pytest.mark.parametrize("change", [{"count": 4}, {"table": "AAAA"}, {"table": None}, {"classes": "many"}])
def test_a_document_that_is_no_table(change: dict[str, object]) -> None:
    document = ShardTable.of(map(shard, range(3))).to_json()
    with pytest.raises(ValueError, match=r"count=4 vs 3|count=3 vs 0|table of shards|bad char"):
        ShardTable.from_json(document | change)


def test_a_million_shards_are_shown_at_once(tmp_path: Path) -> None:
    sha256 = np.random.default_rng(0).bytes(32 * MANY)
    rows = np.zeros(MANY, np.dtype([("records", "<u4"), ("bytes", "<u8"), ("sha256", "V32")]))
    rows["records"], rows["bytes"], rows["sha256"] = 1000, 3_089_000, np.frombuffer(sha256, "V32")
    train = SplitInfo(
        name="train",
        records=1000 * MANY,
        shards=ShardTable(f"sample-train.tfrecord-0000000-of-{MANY}", 0, False, rows.tobytes()),
        class_counts=(1000 * MANY,),
        mean=(1.0,),
        std=(1.0,),
    )
    manifest = Manifest(
        dataset="sample",
        fingerprint="0123456789abcdef",
        record_length=3073,
        fields=(FieldInfo(name="image", dtype="uint8", shape=(32, 32, 3), encoding="bytes", offset=0),),
        class_names=("all",),
        splits=(train,),
        source=(),
        converter={},
        read=1000 * MANY,
        written=1000 * MANY,
        quarantined=(),
    )
    store = open_store(tmp_path)
    name = publish_manifest(store, manifest)
    found = store.find(name)
    assert found
    assert found.bytes < 100_000_000
    again = read_manifest(store, manifest.folder).split("train").shards
    assert again == train.shards
    assert again[MANY - 1].file == f"sample-train.tfrecord-0999999-of-{MANY}"
    started = time.monotonic()
    shown = CliRunner().invoke(cli, ["data", "show", "sample", "--root", str(tmp_path)], catch_exceptions=False)
    seconds = time.monotonic() - started
    assert f"{1000 * MANY:,} examples in {MANY:,} shards" in shown.output
    assert seconds < 10  # 2 s on an idle machine
