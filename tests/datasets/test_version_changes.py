"""What changed between two versions does not depend on how many records are compared at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from podline.data import record_table
from podline.data.pixels import PixelSums
from podline.data.record_table import RECORDS, rows_of, write_records
from podline.datasets.version_changes import VersionRecords, version_changes
from podline.store.folder import FolderStore

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
def test_versions_compared_some_rows_at_a_time_equal_whole_ones(
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
