from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import (
    CIFAR10_BATCHES,
    CIFAR10_NAMES,
    cifar10_batch,
    cifar100_batch,
    labels_of,
    noise,
    python2,
    write_cifar10_bins,
    write_cifar10_pickles,
    write_cifar100_bins,
    write_cifar100_pickles,
)

from podline.data.rows import SourceSplit
from podline.data.sources import class_names
from podline.data.sources.opening import open_source
from podline.data.sources.pickles import Label, read_names, write_batch
from podline.data.sources.source import Source
from podline.errors import SourceError
from podline.store import digests

pytestmark = pytest.mark.usefixtures("parsed_here")


def images_of(rows: np.ndarray) -> np.ndarray:
    """CIFAR's rows as images, by the authors' description: red plane, green plane, blue plane, row by row."""
    images = np.empty((len(rows), 32, 32, 3), np.uint8)
    for channel in range(3):
        images[..., channel] = rows[:, channel * 1024 : (channel + 1) * 1024].reshape(-1, 32, 32)
    return images


def everything(split: SourceSplit) -> dict[str, np.ndarray]:
    return split.read(np.arange(len(split)))


def check_cifar10(source: Source, rows: int = 4) -> None:
    assert [split.name for split in source.splits] == ["train", "test"]
    assert source.class_names == CIFAR10_NAMES
    counts = dict(zip(CIFAR10_BATCHES, range(rows, rows + 6), strict=True))
    for split, names in zip(source.splits, (CIFAR10_BATCHES[:5], CIFAR10_BATCHES[5:]), strict=True):
        found = everything(split)
        assert found["label"].tolist() == [label for name in names for label in labels_of(name, counts[name])]
        np.testing.assert_array_equal(
            found["image"], images_of(np.concatenate([noise(name, counts[name]) for name in names]))
        )
    assert source.splits[0].record_name(rows + 2).startswith("data_batch_2")
    assert source.splits[0].record_name(rows + 2).endswith("[2]")
    assert [feature.name for feature in source.features] == ["image", "label"]


def test_cifar10_pickles(tmp_path: Path) -> None:
    folder = write_cifar10_pickles(tmp_path / "cifar")
    source = open_source("cifar10", str(folder), tmp_path / "work")
    check_cifar10(source)
    assert [(file.name, file.bytes, file.sha256) for file in source.files] == [
        (name, (folder / name).stat().st_size, digests.of_file(folder / name))
        for name in (*CIFAR10_BATCHES, "batches.meta")
    ]


def test_cifar10_bins(tmp_path: Path) -> None:
    source = open_source("cifar10", str(write_cifar10_bins(tmp_path / "cifar")), tmp_path / "work")
    check_cifar10(source)
    assert [file.name for file in source.files][-2:] == ["test_batch.bin", "batches.meta.txt"]


@pytest.mark.parametrize("protocol", [0, 5])
def test_cifar10_pickled_by_python_3(tmp_path: Path, protocol: int) -> None:
    folder = write_cifar10_pickles(tmp_path / "cifar")
    for number, name in enumerate(CIFAR10_BATCHES):
        batch = cifar10_batch(name, 4 + number)
        if number == 1:
            batch["data"] = np.asfortranarray(batch["data"])
        if number == 2:
            batch["labels"] = np.array(batch["labels"])
        (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    source = open_source("cifar10", str(folder), tmp_path / "work")
    check_cifar10(source)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*/pixels")}
    assert len(made) == 6
    check_cifar10(open_source("cifar10", str(folder), tmp_path / "work"))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*/pixels")} == made


@pytest.mark.parametrize("write", [write_cifar100_pickles, write_cifar100_bins])
def test_cifar100(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    source = open_source("cifar100", str(write(tmp_path / "cifar")), tmp_path / "work")
    assert source.class_names == class_names.CIFAR100_FINE
    assert source.extra_class_names == {"coarse_label": class_names.CIFAR100_COARSE}
    assert [feature.name for feature in source.features] == ["image", "label", "coarse_label"]
    for split in source.splits:
        found = everything(split)
        assert found["label"].tolist() == labels_of(split.name, 4, 100)
        assert found["coarse_label"].tolist() == labels_of(split.name, 4, 20)
        np.testing.assert_array_equal(found["image"], images_of(noise(split.name, 4)))


def test_batches_without_rows_are_passed_over(tmp_path: Path) -> None:
    folder = write_cifar100_pickles(tmp_path / "cifar")
    (folder / "test").write_bytes(python2(cifar100_batch("test", 0)))
    with pytest.raises(SourceError, match=r"test beside .*train hold no image"):
        open_source("cifar100", str(folder), tmp_path / "work")
    folder = write_cifar10_pickles(tmp_path / "ten")
    (folder / "data_batch_1").write_bytes(python2(cifar10_batch("data_batch_1", 0)))
    source = open_source("cifar10", str(folder), tmp_path / "work")
    assert [len(split) for split in source.splits] == [5 + 6 + 7 + 8, 9]
    assert source.splits[0].record_name(0) == "data_batch_2[0]"


def test_own_class_names(tmp_path: Path) -> None:
    names = tuple(f"kind {number}" for number in range(10))
    folder = write_cifar10_bins(tmp_path / "cifar")
    (folder / "batches.meta.txt").write_text("\n".join(names))
    assert open_source("cifar10", str(folder), tmp_path).class_names == names
    (folder / "batches.meta.txt").unlink()
    assert open_source("cifar10", str(folder), tmp_path).class_names == CIFAR10_NAMES
    assert open_source("sample", str(folder), tmp_path).class_names == class_names.SAMPLE
    pickled = write_cifar10_pickles(tmp_path / "pickled", names=names)
    assert open_source("cifar10", str(pickled), tmp_path).class_names == names


def refused(dataset: Any, folder: Path) -> str:
    with pytest.raises(SourceError) as caught:
        open_source(dataset, str(folder), folder.parent / "work")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"label_names": list(range(10))}, "not a list of texts"),
        ({"label_names": 10}, "not a list of texts"),
        ([], "a list vs a dictionary"),
    ],
)
def test_wrong_meta(tmp_path: Path, content: Any, told: str) -> None:
    (tmp_path / "batches.meta").write_bytes(python2(content))
    with pytest.raises(SourceError, match=rf"batches\.meta.*{told}"):
        read_names(tmp_path / "batches.meta", ["label_names"])


@pytest.mark.parametrize(
    ("names", "told"), [("ab", "2 class names vs 10 classes"), ("abcdefghia", "two classes are called 'a'")]
)
def test_wrong_meta_of_bins(tmp_path: Path, names: str, told: str) -> None:
    folder = write_cifar10_bins(tmp_path / "cifar")
    (folder / "batches.meta.txt").write_text("\n".join(names))
    assert f"batches.meta.txt: {told}" in refused("cifar10", folder)


ROWS = noise("data_batch_3", 6)
WRONG_BATCHES: dict[str, tuple[Any, str]] = {
    "fewer rows than labels": ({"labels": [0] * 6, "data": ROWS[:5]}, "6 labels vs 5 images"),
    "more rows than labels": ({"labels": [0] * 4, "data": ROWS[:5]}, "4 labels vs 5 images"),
    "label too large": ({"labels": [0, 1, 10, 11, 0, 0], "data": ROWS}, "labels[2] is 10 vs 0 to 9"),
    "label negative": ({"labels": [0, 1, 0, -1, 0, 0], "data": ROWS}, "labels[3] is -1 vs 0 to 9"),
    "label enormous": ({"labels": [2**80] + [0] * 5, "data": ROWS}, f"labels[0] is {2**80} vs 0 to 9"),
    "label in an array": ({"labels": np.array([0, 0, 0, 0, 0, 256]), "data": ROWS}, "labels[5] is 256 vs 0 to 9"),
    "label a real number": ({"labels": [0.0] * 6, "data": ROWS}, "not a list of whole numbers"),
    "labels one-hot": ({"labels": np.eye(10)[:6], "data": ROWS}, "not a list of whole numbers"),
    "labels a dictionary": ({"labels": {}, "data": ROWS}, "not a list of whole numbers"),
    "pixels of reals": ({"labels": [0] * 6, "data": ROWS / 255}, "shape (6, 3072) and dtype float64 vs (rows, 3072)"),
    "images shaped": ({"labels": [0] * 6, "data": ROWS.reshape(6, 3, 32, 32)}, "shape (6, 3, 32, 32)"),
    "rows cut": ({"labels": [0] * 6, "data": ROWS[:, 1:].copy()}, "shape (6, 3071)"),
    "pixels a list": ({"labels": [0] * 6, "data": [1, 2]}, "the data is a list vs an array of uint8"),
    "no labels": ({"data": ROWS}, "keys ['data'] vs ['data', 'labels'] needed"),
    "CIFAR-100": ({"fine_labels": [], "data": ROWS}, "is not a batch of CIFAR-10: keys ['data', 'fine_labels']"),
    "a list": ([1], "a list vs ['data', 'labels'] needed"),
}


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize("name", WRONG_BATCHES)
def test_wrong_batches(tmp_path: Path, name: str, protocol: int) -> None:
    content, told = WRONG_BATCHES[name]
    path = tmp_path / "data_batch_3"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(SourceError) as caught:
        write_batch(path, "CIFAR-10", [Label("label", "labels", class_names.CIFAR10)], tmp_path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


def test_wrong_bins(tmp_path: Path) -> None:
    folder = write_cifar10_bins(tmp_path / "cifar")
    path = folder / "data_batch_2.bin"
    rows = path.read_bytes()
    path.write_bytes(rows[:-1])
    assert f"{path} is truncated, or no CIFAR-10 in binary layout: 15,364 bytes vs 4 or 5 rows of 3,073" in refused(
        "cifar10", folder
    )
    path.write_bytes(rows[:3073] + b"\x0a" + rows[3074:])
    assert f"{path}: labels[1] is 10 vs 0 to 9" in refused("cifar10", folder)
    hundred = write_cifar100_bins(tmp_path / "cifar100")
    rows = (hundred / "test.bin").read_bytes()
    (hundred / "test.bin").write_bytes(b"\x14" + rows[1:])
    assert "test.bin: coarse_labels[0] is 20 vs 0 to 19" in refused("cifar100", hundred)
    (hundred / "test.bin").write_bytes(rows[:1] + b"\x64" + rows[2:])
    assert "test.bin: fine_labels[0] is 100 vs 0 to 99" in refused("cifar100", hundred)


def test_a_source_travels_small(tmp_path: Path) -> None:
    """What goes to the workers is paths, offsets and labels."""
    folder = write_cifar10_pickles(tmp_path / "cifar", rows=200)
    source = open_source("cifar10", str(folder), tmp_path / "work")
    assert len(pickle.dumps(source)) < 6_000
