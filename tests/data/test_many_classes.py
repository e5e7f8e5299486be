"""Records whose label takes more than one byte, from the store to a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_dataset import FINGERPRINT, seal
from small_dataset import publish as publish_dataset

from podline.data.reader import open_split
from podline.data.records import place_of
from podline.datasets.validation import check_records
from podline.documents.manifest import Manifest, dataset_folder
from podline.errors import ArtifactError
from podline.progress import silent
from podline.store.opening import open_store

CLASSES = tuple(f"class {number}" for number in range(300))
FOLDER = dataset_folder("sample", FINGERPRINT)
RNG = np.random.default_rng(0)
SPLITS = {
    name: {"image": RNG.integers(0, 256, (count, 4, 4, 3), np.uint8), "label": RNG.integers(0, 300, count)}
    for name, count in {"train": 250, "test": 60}.items()
}


def publish(root: Path | str) -> Manifest:
    return publish_dataset(root, "sample", CLASSES, SPLITS, shard_records=100)


def test_labels_come_back_from_a_folder(tmp_path: Path) -> None:
    reader = open_split(open_store(tmp_path), FOLDER, publish(tmp_path), "train")
    for order in (RNG.permutation(250), np.array([249, 0, 0]), np.empty(0, np.int64)):
        found = reader.gather(order)
        assert found["label"].dtype == np.int64
        for name, values in SPLITS["train"].items():
            np.testing.assert_array_equal(found[name], values[order])


def test_class_counts_are_of_all_classes(tmp_path: Path) -> None:
    manifest = publish(tmp_path)
    for name, columns in SPLITS.items():
        assert manifest.split(name).class_counts == tuple(np.bincount(columns["label"], minlength=300).tolist())
    assert {shard.class_counts for split in manifest.splits for shard in split.shards} == {()}


def test_a_label_that_cannot_be_is_found(tmp_path: Path) -> None:
    manifest, store = publish(tmp_path), open_store(tmp_path)
    path = store.local(f"{FOLDER}/{manifest.split('train').shards[1].file}")
    frames = np.fromfile(path, np.uint8).reshape(-1, manifest.record_length + 16)
    frames[4, place_of(manifest.field("label"))] = np.frombuffer(b"\xac\x02", np.uint8)
    frames.tofile(path)
    with pytest.raises(
        ArtifactError, match=rf"{path.name}: record 4, at byte {4 * frames.shape[1]}, .*=300 vs 0 to 299"
    ):
        check_records(store, FOLDER, seal(tmp_path), silent())
