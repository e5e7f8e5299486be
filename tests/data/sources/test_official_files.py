"""CIFAR and MNIST are read in every official form, and a wrong file is named with what is wrong."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import (
    CIFAR10_BATCHES,
    CIFAR10_NAMES,
    MNIST_NAMES,
    cifar10_batch,
    cifar100_batch,
    idx,
    labels_of,
    mnist_files,
    names_of,
    noise,
    python2,
    write_archive,
    write_cifar10_bins,
    write_cifar10_pickles,
    write_cifar100_bins,
    write_cifar100_pickles,
    write_mnist,
)

from podline.base.errors import SourceError
from podline.data.records import label_feature
from podline.data.shards import SourceSplit
from podline.data.sources import class_names
from podline.data.sources.opening import open_source
from podline.store import digests

pytestmark = pytest.mark.usefixtures("parsed_here")


def images_of(rows: np.ndarray) -> np.ndarray:
    """CIFAR's rows as images, by the authors' description: red plane, green plane, blue plane, row by row."""
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def everything(split: SourceSplit) -> dict[str, np.ndarray]:
    return split.read(np.arange(len(split)))


def pickled(protocol: int, folder: Path) -> Path:
    """By Python 3, with an array in another order, and labels in an array."""
    write_cifar10_pickles(folder)
    for number, name in enumerate(CIFAR10_BATCHES):
        batch = cifar10_batch(name, 4 + number)
        if number == 1:
            batch["data"] = np.asfortranarray(batch["data"])
        if number == 2:
            batch["labels"] = np.array(batch["labels"])
        (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    return folder


@pytest.mark.parametrize(
    ("write", "ending"),
    [
        (write_cifar10_pickles, ""),
        (partial(pickled, 0), ""),
        (partial(pickled, 5), ""),
        (write_cifar10_bins, ".bin"),
    ],
)
def test_cifar10(tmp_path: Path, write: Callable[[Path], Path], ending: str) -> None:
    folder = write(tmp_path / "cifar")
    source = open_source("cifar10", str(folder), tmp_path / "work")
    assert [split.name for split in source.splits] == ["train", "test"]
    assert source.class_names == CIFAR10_NAMES
    counts = dict(zip(CIFAR10_BATCHES, range(4, 10), strict=True))
    for split, names in zip(source.splits, (CIFAR10_BATCHES[:5], CIFAR10_BATCHES[5:]), strict=True):
        found = everything(split)
        assert found["label"].tolist() == [label for name in names for label in labels_of(name, counts[name])]
        rows = np.concatenate([noise(name, counts[name]) for name in names])
        np.testing.assert_array_equal(found["image"], images_of(rows))
    assert names_of(source, "train")[6] == f"data_batch_2{ending}[2]"
    assert [feature.name for feature in source.features] == ["image", "label"]
    names = [f"{name}{ending}" for name in CIFAR10_BATCHES] + ["batches.meta.txt" if ending else "batches.meta"]
    assert [(file.name, file.bytes, file.sha256) for file in source.files] == [
        (name, (folder / name).stat().st_size, digests.of_file(folder / name)) for name in names
    ]
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*/pixels")}
    assert len(made) == 6
    open_source("cifar10", str(folder), tmp_path / "work")
    assert {path: path.stat().st_mtime_ns for path in made} == made


@pytest.mark.parametrize("write", [write_cifar100_pickles, write_cifar100_bins])
def test_cifar100(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    source = open_source("cifar100", str(write(tmp_path / "cifar")), tmp_path / "work")
    assert source.class_names == class_names.CIFAR100_FINE
    assert source.targets[1] == label_feature("coarse_label", class_names.CIFAR100_COARSE)
    assert [feature.name for feature in source.features] == ["image", "label", "coarse_label"]
    for split in source.splits:
        found = everything(split)
        assert found["label"].tolist() == labels_of(split.name, 4, 100)
        assert found["coarse_label"].tolist() == labels_of(split.name, 4, 20)
        np.testing.assert_array_equal(found["image"], images_of(noise(split.name, 4)))


def test_batches_without_rows_are_passed_over(tmp_path: Path) -> None:
    folder = write_cifar100_pickles(tmp_path / "cifar")
    (folder / "test").write_bytes(python2(cifar100_batch("test", 0)))
    assert "the test split has no image, expected at least one" in refused("cifar100", folder)
    folder = write_cifar10_pickles(tmp_path / "ten")
    (folder / "data_batch_1").write_bytes(python2(cifar10_batch("data_batch_1", 0)))
    source = open_source("cifar10", str(folder), tmp_path / "work")
    assert [len(split) for split in source.splits] == [5 + 6 + 7 + 8, 9]
    assert names_of(source, "train")[0] == "data_batch_2[0]"


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


def test_the_real_one_is_what_its_pickles_hold(real_data: Path, tmp_path: Path) -> None:
    source = open_source("cifar10", str(real_data / "cifar10"), tmp_path / "work")
    assert source.class_names == CIFAR10_NAMES
    folder = real_data / "cifar10" / "cifar-10-batches-py"
    batches = [pickle.loads((folder / name).read_bytes(), encoding="bytes") for name in CIFAR10_BATCHES]
    for split, members in zip(source.splits, (batches[:5], batches[5:]), strict=True):
        found = everything(split)
        np.testing.assert_array_equal(found["image"], images_of(np.concatenate([batch[b"data"] for batch in members])))
        assert found["label"].tolist() == [label for batch in members for label in batch[b"labels"]]


def refused(dataset: str, folder: Path) -> str:
    with pytest.raises(SourceError) as caught:
        open_source(dataset, str(folder), folder.parent / "work")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a\u2028b", "has the character U+2028"),
        (" ", "is empty"),
        ("x" * 256, "has 256 letters vs 255 at most"),
        ("grün", ""),
    ],
)
def test_class_names_that_are_no_line(name: str, told: str) -> None:
    assert class_names.problem_of(name).startswith(told)
    assert bool(class_names.problem_of(name)) == bool(told)


GOOD = mnist_files()
ROWS = noise("data_batch_3", 6)
LABELS = [0, 1, 2, 3, 4, 5]
BINS, IDX = write_cifar10_bins, partial(write_mnist, packed=False)
Change = Callable[[bytes], bytes]


def batch(**content: Any) -> tuple[str, Callable[[Path], Path], str, Change]:
    """A wrong pickled batch."""
    return "cifar10", write_cifar10_pickles, "data_batch_3", lambda _: pickle.dumps(content, protocol=2)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (batch(labels=LABELS, data=ROWS[:5]), "6 labels vs 5 images"),
        (batch(labels=[0, 1, 10, 11, 0, 0], data=ROWS), "labels[2] is 10 vs 0 to 9"),
        (batch(labels=[1 << 20_000, *LABELS[1:]], data=ROWS), "labels[0] is a number of"),
        (batch(labels=[0.0] * 6, data=ROWS), "not a list of whole numbers"),
        (batch(labels=LABELS, data=ROWS / 255), "shape (6, 3072) and dtype float64, expected (rows, 3072)"),
        (batch(labels=LABELS, data=[1, 2]), "data is of type list, expected an array of uint8"),
        (batch(data=ROWS), "found keys ['data'], expected the keys ['data', 'labels']"),
        (
            ("cifar10", write_cifar10_pickles, "batches.meta", lambda _: python2([])),
            "found a list, expected a dictionary",
        ),
        (("cifar10", BINS, "batches.meta.txt", lambda _: b"a\nb"), "2 class names vs 10 classes"),
        (("cifar10", BINS, "batches.meta.txt", lambda _: b"a\n" * 10), "two classes are called 'a'"),
        (("cifar10", BINS, "batches.meta.txt", lambda data: data[:-4] + b"\x1b"), "has the character U+001B"),
        (("cifar10", BINS, "batches.meta.txt", lambda data: data + b"\n" * 10**6), "vs 1,000,000 at most for class"),
        (("cifar10", BINS, "data_batch_2.bin", lambda data: b"\x0a" + data[1:]), "labels[0] is 10 vs 0 to 9"),
        (("cifar10", BINS, "data_batch_3.bin", lambda _: b""), "is empty: 0 bytes"),
        (("cifar100", write_cifar100_bins, "test.bin", lambda data: b"\x14" + data[1:]), "coarse_labels[0] is 20 vs"),
        (
            ("mnist", IDX, MNIST_NAMES[0], lambda _: GOOD[MNIST_NAMES[1]]),
            "magic number 0x00000801 vs 0x0000",
        ),
        (("mnist", IDX, MNIST_NAMES[0], lambda data: data[:-1]), "is truncated: 5,503 bytes vs 5,504 by its header"),
        (("mnist", IDX, MNIST_NAMES[2], lambda data: data + b"!!"), "bytes after its end: 3,938 bytes vs 3,936"),
        (("mnist", IDX, MNIST_NAMES[1], lambda _: idx(np.zeros(6, np.uint8))), "has 7 images vs 6 labels in"),
        (("mnist", IDX, MNIST_NAMES[3], lambda data: data[:-2] + b"\x0a\0"), "labels[3] is 10 vs 0 to 9"),
        (("mnist", IDX, MNIST_NAMES[0], lambda _: idx(np.zeros((7, 32, 32), np.uint8))), "of 32×32 pixels vs 28×28"),
        (("mnist", write_mnist, f"{MNIST_NAMES[0]}.gz", lambda _: gzip.compress(b"x")), "magic number 0x78 vs 0x0000"),
    ],
)
def test_a_wrong_file_is_named(
    tmp_path: Path, wrong: tuple[str, Callable[[Path], Path], str, Change], told: str
) -> None:
    dataset, write, file, change = wrong
    path = write(tmp_path / "raw") / file
    path.write_bytes(change(path.read_bytes()))
    message = refused(dataset, path.parent)
    assert told in message
    assert str(path.with_suffix("") if path.suffix == ".gz" else path) in message


@pytest.mark.parametrize(
    ("rows", "cut"),
    [((5, 5, 4, 5, 5), 3), ((5, 5, 5, 5, 2), 0), ((1, 2, 3, 4, 5), 0)],
)
def test_a_batch_that_is_cut_at_a_row(tmp_path: Path, rows: tuple[int, ...], cut: int) -> None:
    folder = write_cifar10_bins(tmp_path / "cifar", 6)
    for number, count in enumerate(rows, 1):
        path = folder / f"data_batch_{number}.bin"
        path.write_bytes(path.read_bytes()[: 3073 * count])
    if cut:
        told = f"data_batch_{cut}.bin is cut short: {rows[cut - 1] * 3073:,} bytes vs 15,365 of the other batches"
        assert told in refused("cifar10", folder)
    else:
        assert len(open_source("cifar10", str(folder), tmp_path / "work").splits[0]) == sum(rows)


def test_the_last_official_batch_is_as_long_as_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podline.data.sources.cifar._OFFICIAL_ROWS", 4)
    folder = write_cifar10_bins(tmp_path / "cifar")
    for number in range(1, 6):
        path = folder / f"data_batch_{number}.bin"
        path.write_bytes(path.read_bytes()[: 3073 * (4 if number < 5 else 3)])
    assert "data_batch_5.bin is cut short: 9,219 bytes vs 12,292" in refused("cifar10", folder)


DOTTED = {name.replace("-idx", ".idx"): data for name, data in GOOD.items()}
ZIPPED = {f"mnist/{name}.gz": gzip.compress(data) for name, data in GOOD.items()}


@pytest.mark.parametrize(
    "write",
    [
        write_mnist,
        lambda folder: write_mnist(folder, content=DOTTED),
        lambda folder: write_mnist(folder, content=DOTTED, packed=False),
        # Not gzipped though its name says so, as some browsers save it.
        lambda folder: write_mnist(folder, content={f"{name}.gz": GOOD[name] for name in GOOD}, packed=False),
        lambda folder: write_mnist(folder / "MNIST" / "raw").parents[1],  # where torchvision puts them
        lambda folder: write_archive(folder.with_name("mnist.tar.gz"), ZIPPED),
    ],
)
def test_every_place_and_name_gives_the_same_source(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    place = str(write(tmp_path / "mnist"))
    source = open_source("mnist", place, tmp_path / "work")
    assert source.class_names == tuple("0123456789")
    assert [(feature.name, feature.shape) for feature in source.features] == [("image", (28, 28, 1)), ("label", ())]
    for split, name, count in zip(source.splits, ("train", "t10k"), (7, 5), strict=True):
        found = split.read(np.arange(count)[::-1])
        np.testing.assert_array_equal(found["image"], noise(name, count, 784).reshape(-1, 28, 28, 1)[::-1])
        assert found["label"].tolist() == labels_of(name, count)[::-1]
        assert names_of(source, split.name)[2] == f"{name}-images-idx3-ubyte[2]"
    assert [(file.name, file.sha256) for file in source.files] == [
        (name, digests.of_bytes(data)) for name, data in GOOD.items()
    ]
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").glob("*/*ubyte")}
    open_source("mnist", place, tmp_path / "work")
    assert {path: path.stat().st_mtime_ns for path in made} == made, "unpacked once"


def test_no_images_or_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no images"):
        open_source("mnist", str(write_mnist(tmp_path / "m", content=mnist_files(test=0))), tmp_path / "work")
    folder = write_mnist(tmp_path / "mnist")
    (folder / f"{MNIST_NAMES[1]}.gz").unlink()
    with pytest.raises(SourceError, match=r"has MNIST without train-labels-idx1-ubyte; .*podline data download mnist"):
        open_source("mnist", str(folder), tmp_path / "work")
