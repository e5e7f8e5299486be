"""The sources against real data, as it was published."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from published import CIFAR10_BATCHES, CIFAR10_NAMES

from podline.data.rows import SourceSplit
from podline.data.sources.duplicates import same_images, split_crcs
from podline.data.sources.opening import open_source


def repeated(split: SourceSplit) -> list[list[int]]:
    return same_images(split_crcs(split), lambda positions: split.read(positions)["image"])


def test_cifar10(real_data: Path, tmp_path: Path) -> None:
    source = open_source("cifar10", str(real_data / "cifar10"), tmp_path / "work")
    assert source.class_names == CIFAR10_NAMES
    batches = [
        pickle.loads((real_data / "cifar10" / "cifar-10-batches-py" / name).read_bytes(), encoding="bytes")
        for name in CIFAR10_BATCHES
    ]
    for split, members in zip(source.splits, (batches[:5], batches[5:]), strict=True):
        rows = np.concatenate([batch[b"data"] for batch in members])
        found = split.read(np.arange(len(split)))
        np.testing.assert_array_equal(found["image"], rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        assert found["label"].tolist() == [label for batch in members for label in batch[b"labels"]]
        assert repeated(split) == []
    assert [len(split) for split in source.splits] == [8068, 1017]
    assert source.looked_at()[0] is source
