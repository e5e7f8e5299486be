from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from raw_cifar import convert_plainly, convert_spec, write_raw_cifar
from small_dataset import drawn, publish_dataset, validation_of

from podline.data import record_table
from podline.data.images.opening import Identities
from podline.data.pixels import PixelSums
from podline.data.record_table import RECORDS, RecordTable, rows_of, write_records
from podline.datasets import census, growth
from podline.datasets.census import COLUMNS, SplitCensus, changes, same_examples
from podline.datasets.draft import Written
from podline.datasets.version_changes import VersionRecords, version_changes
from podline.documents.shard_table import ShardInfo, ShardTable
from podline.errors import ArtifactError
from podline.stages.completed import complete
from podline.stages.specs import ValidateResult
from podline.store.folder import FolderStore
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


PIXELS = PixelSums(count=1, sums=(0,), squares=(0,))


class Tabled(VersionRecords):
    """The words of a record are its digest."""

    def words(self, ids: Any) -> list[str]:
        digests = np.concatenate([some.digests for split in self.splits for some in self.of_split(split)])
        return [digest.hex() for digest in digests[ids].tolist()]


def version(store: FolderStore, folder: str, splits: dict[str, list[tuple[bytes, bytes]]]) -> Tabled:
    rows = []
    for split, records in splits.items():
        keys, digests = zip(*sorted(records), strict=True)
        binary = pa.binary(record_table.DIGEST_BYTES)
        columns = {
            "split": pa.repeat(split, len(keys)),
            "key": pa.array(keys, binary),
            "digest": pa.array(digests, binary),
        }
        rows.append(rows_of(columns))
    path = store.local(f"{folder}/{RECORDS}")
    path.parent.mkdir(parents=True)
    write_records(path, rows, dict.fromkeys(splits, PIXELS))
    infos = [SimpleNamespace(name=split, records=len(records)) for split, records in splits.items()]
    manifest: Any = SimpleNamespace(folder=folder, splits=infos, fields=(), records=True)
    return Tabled(store, manifest)


@pytest.mark.parametrize("seed", range(10))
def test_changes_of_versions_compared_some_rows_at_a_time_are_those_of_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = np.random.default_rng(seed)
    monkeypatch.setattr(record_table, "_AT_ONCE", int(random.integers(1, 40)))
    images = [random.bytes(16) for _ in range(120)]
    sides = []
    for _ in range(2):
        chosen = random.permutation(120)[:90]
        digests = [images[at] if random.random() < 0.9 else random.bytes(16) for at in chosen]
        records = [(images[at], digest) for at, digest in zip(chosen, digests, strict=True)]
        cut = int(random.integers(20, 70))
        sides.append({"test": records[:cut], "train": records[cut:]})
    before, after = (version(FolderStore(tmp_path), str(at), side) for at, side in enumerate(sides))
    found = version_changes(before, after)
    then, now = ({key: (split, digest) for split, some in side.items() for key, digest in some} for side in sides)

    def keys(of: VersionRecords, ids: Any) -> list[bytes]:
        return [key.ljust(16, b"\0") for key in of.keys(ids).tolist()]

    both = then.keys() & now.keys()
    assert set(keys(after, found.added)) == now.keys() - then.keys()
    assert set(keys(before, found.removed)) == then.keys() - now.keys()
    for pair, which in ((found.relabelled, 1), (found.moved, 0)):
        assert keys(before, pair[0]) == keys(after, pair[1])
        assert set(keys(after, pair[1])) == {key for key in both if then[key][which] != now[key][which]}
    drawn, test = before.drawn(1_000), before.drawn(10, held_out=True)
    assert sorted(drawn.tolist()) == list(range(90))
    assert set(before.named(test)) <= {f"test[{at}]" for at in range(len(sides[0]["test"]))}
