from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from podline.data.sources.duplicates import count_repeated, image_digests, quarantine_shared, split_digests
from podline.data.sources.source import RowBlock, Source, SourceSplit
from podline.errors import SourceError


def split_of(folder: Path, name: str, *batches: np.ndarray) -> SourceSplit:
    """A split of 2×2 grey images."""
    blocks = []
    for number, rows in enumerate(batches):
        path = folder / f"{name}_{number}"
        path.write_bytes(rows.astype(np.uint8).tobytes())
        blocks.append(RowBlock(path.name, str(path), 0, 4, len(rows), "hwc"))
    labels = np.arange(sum(map(len, batches))).astype(np.uint8)
    return SourceSplit(name, (2, 2, 1), tuple(blocks), {"label": labels})


def numbered(*numbers: int) -> np.ndarray:
    """Images that are equal where their numbers are."""
    return np.array([[n % 256, n // 256, 0, 0] for n in numbers], np.uint8).reshape(-1, 4)


def source_of(*splits: SourceSplit) -> Source:
    return Source("tiny", ("a",), (), splits)


def test_digests_are_of_every_pixel() -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 4, 5, 3), np.uint8)
    images[30] = images[10]
    images[31] = images[10]
    images[31, 3, 4, 2] ^= 1
    found = image_digests(images)
    assert found.dtype == "S32"
    assert len(set(found.tolist())) == 49
    assert found[30] == found[10] != found[31]
    planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(image_digests(planes.transpose(0, 2, 3, 1)), found)
    assert image_digests(images[:0]).shape == (0,)


def test_digests_that_end_in_zeros_stay_apart() -> None:
    """NumPy's byte strings lose trailing zeros; equal ones still are those of equal images only."""
    images = np.arange(70_000, dtype=np.uint32).view(np.uint8).reshape(-1, 2, 2, 1)
    found = image_digests(images)
    assert (found.view(np.uint8).reshape(-1, 32)[:, -1] == 0).any()
    assert len(np.unique(found)) == 70_000


def test_a_split_is_read_in_chunks(tmp_path: Path) -> None:
    numbers = range(5000)
    split = split_of(tmp_path, "train", numbered(*numbers[:10]), numbered(*numbers[10:]))
    np.testing.assert_array_equal(split_digests(split), image_digests(numbered(*numbers).reshape(-1, 2, 2, 1)))


def test_repeated_records_are_counted(tmp_path: Path) -> None:
    split = split_of(tmp_path, "train", numbered(1, 2, 1, 3), numbered(2, 1, 4))
    assert count_repeated(split_digests(split)) == 5
    assert count_repeated(split_digests(split)[[0, 1, 3]]) == 0


def test_splits_that_are_apart_stay_as_they_are(tmp_path: Path) -> None:
    source = source_of(split_of(tmp_path, "train", numbered(1, 2, 2)), split_of(tmp_path, "test", numbered(3, 3)))
    assert quarantine_shared(source) is source


def test_shared_images_are_kept_out_of_training(tmp_path: Path) -> None:
    train = split_of(tmp_path, "train", numbered(*range(100)), numbered(900, 5, 400, 900))
    test = split_of(tmp_path, "test", numbered(*range(1000, 1150)), numbered(*range(800, 950)), numbered(900))
    source = quarantine_shared(source_of(train, test))
    assert [record.model_dump() for record in source.quarantined] == [
        {"split": "train", "record": "train_1[0]", "reason": "the same image as test_1[100] of the test split"},
        {"split": "train", "record": "train_1[3]", "reason": "the same image as test_1[100] of the test split"},
    ]
    apart = source.splits[0]
    assert (len(apart), len(source.splits[1])) == (102, 301)
    assert apart.read(np.arange(102))["label"].tolist() == [*range(100), 101, 102]
    assert [apart.record_name(index) for index in (99, 100, 101)] == ["train_0[99]", "train_1[1]", "train_1[2]"]
    again = quarantine_shared(source)
    assert again is source, "nothing is left to quarantine"


def test_records_quarantined_before_stay_out(tmp_path: Path) -> None:
    train = split_of(tmp_path, "train", numbered(7, 1, 2, 3))
    kept = SourceSplit("train", train.image_shape, train.blocks, train.labels, np.array([1, 2, 3]))
    test = split_of(tmp_path, "test", numbered(2, *range(100, 200)))
    source = quarantine_shared(source_of(kept, test))
    assert [record.record for record in source.quarantined] == ["train_0[2]"]
    assert source.splits[0].kept is not None
    assert source.splits[0].kept.tolist() == [1, 3]


def test_one_in_a_hundred_is_the_limit(tmp_path: Path) -> None:
    test = split_of(tmp_path, "test", numbered(*range(300)))
    at_limit = split_of(tmp_path, "train", numbered(1000, 10, 20, 20, 30))
    assert len(quarantine_shared(source_of(at_limit, test)).quarantined) == 4
    beyond = split_of(tmp_path, "train", numbered(1000, 10, 20, 30, 40))
    with pytest.raises(SourceError) as caught:
        quarantine_shared(source_of(beyond, test))
    message = str(caught.value)
    assert "tiny: 4 of the 300 test images are training images as well" in message
    assert "(train_0[1] and test_0[10] are the first) vs 1% at most" in message
    assert "the evaluation would lie inside the training set" in message


def test_memory_is_flat(tmp_path: Path) -> None:
    rows = np.zeros((40_000, 3072), np.uint8)
    rows[:, :4] = np.arange(40_000, dtype=np.uint32).view(np.uint8).reshape(-1, 4)
    (tmp_path / "rows").write_bytes(rows.tobytes())
    del rows
    block = RowBlock("rows", str(tmp_path / "rows"), 0, 3072, 40_000, "chw")
    split = SourceSplit("train", (32, 32, 3), (block,), {"label": np.zeros(40_000, np.uint8)})
    tracemalloc.start()
    try:
        assert count_repeated(split_digests(split)) == 0
        assert tracemalloc.get_traced_memory()[1] < 45_000_000  # of 123 MB
    finally:
        tracemalloc.stop()
