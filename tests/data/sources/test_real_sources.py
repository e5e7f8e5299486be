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


def test_mnist(real_data: Path, tmp_path: Path) -> None:
    source = open_source("mnist", str(real_data / "mnist"), tmp_path / "work")
    assert [len(split) for split in source.splits] == [60_000, 10_000]
    train, test = source.splits
    assert train.targets["label"][:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert np.bincount(test.targets["label"]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    # The mean of the training pixels that everybody normalises MNIST with.
    mean = np.mean([train.read(np.arange(n, n + 6000))["image"].mean() for n in range(0, 60_000, 6000)])
    assert round(float(mean) / 255, 4) == 0.1307
    assert [repeated(split) for split in source.splits] == [[], []]
    assert source.looked_at()[0] is source
