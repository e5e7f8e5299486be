"""MNIST as it is published, gzipped or not, in a folder or an archive."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from published import MNIST_NAMES, idx, labels_of, mnist_files, names_of, noise, write_archive, write_mnist

from podline.base.errors import SourceError
from podline.data.sources.opening import open_source
from podline.store import digests

pytestmark = pytest.mark.usefixtures("parsed_here")

GOOD = mnist_files()
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


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("place", "change", "told"),
    [
        (0, lambda _: GOOD[MNIST_NAMES[1]], "not an IDX file of images: magic 0x00000801 vs 0x00000803"),
        (0, lambda data: data[:-1], "is truncated: 5,503 bytes vs 5,504 by its header"),
        (2, lambda data: data + b"!!", "has bytes after its end: 3,938 bytes vs 3,936"),
        (1, lambda _: idx(np.zeros(6, np.uint8)), "has 7 images vs 6 labels in"),
        (3, lambda data: data[:-2] + b"\x0a\0", "labels[3] is 10 vs 0 to 9"),
        (0, lambda _: idx(np.zeros((7, 32, 32), np.uint8)), "images of 32×32 pixels vs 28×28"),
        (0, lambda data: data[:4] + b"\xff" * 12 + data[16:], "79,228,162,458,924,105,385,300,197,391 by"),
    ],
)
def test_wrong_files(tmp_path: Path, packed: bool, place: int, change: Callable[[bytes], bytes], told: str) -> None:
    file = MNIST_NAMES[place]
    folder = write_mnist(tmp_path / "mnist", packed=packed, content=GOOD | {file: change(GOOD[file])})
    with pytest.raises(SourceError) as caught:
        open_source("mnist", str(folder), tmp_path / "work")
    message = str(caught.value)
    assert told in message
    assert str(folder / file) in message, "the file that the user gave, not its unpacked copy"
    assert "\n" not in message


def test_no_images_or_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no image"):
        open_source("mnist", str(write_mnist(tmp_path / "m", content=mnist_files(test=0))), tmp_path / "work")
    folder = write_mnist(tmp_path / "mnist")
    (folder / f"{MNIST_NAMES[1]}.gz").unlink()
    with pytest.raises(SourceError, match=r"has MNIST without train-labels-idx1-ubyte; .*podline data download mnist"):
        open_source("mnist", str(folder), tmp_path / "work")
