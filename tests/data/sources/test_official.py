"""Whether a data set is the one that is published under its name."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from published import archive_of, write_cifar10_pickles

from podline.data.official import CIFAR10, OfficialCheck, OtherFile, check_official, official_lines
from podline.data.sources.opening import open_source

pytestmark = pytest.mark.usefixtures("parsed_here")
WHOLE = {"train": 50_000, "test": 10_000}


def checked(dataset: str, place: Path) -> OfficialCheck | None:
    source = open_source(dataset, str(place), place.parent / "work")
    return check_official(dataset, source.raw, source.archive)


def test_the_real_mnist_is_the_published_one_and_one_byte_makes_it_another(tmp_path: Path, real_data: Path) -> None:
    shutil.copytree(real_data / "mnist", tmp_path / "other")
    assert checked("mnist", tmp_path / "other") == OfficialCheck(official=True)
    labels = tmp_path / "other" / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(gzip.decompress(labels.read_bytes()))
    content[20] = (content[20] + 1) % 10
    labels.write_bytes(gzip.compress(content))
    check = checked("mnist", tmp_path / "other")
    assert check is not None
    assert (check.official, [other.file for other in check.others]) == (False, ["t10k-labels-idx1-ubyte"])


def test_an_archive_is_compared_as_well(tmp_path: Path) -> None:
    renamed = archive_of(write_cifar10_pickles(tmp_path / "cifar-10-batches-py"), tmp_path / "my.tar.gz")
    check = checked("cifar10", renamed)
    assert check is not None
    assert check.official is False
    last = check.others[-1]
    assert (last.file, last.published) == ("cifar-10-python.tar.gz", CIFAR10.archive_md5("cifar-10-python.tar.gz"))


def test_what_is_said() -> None:
    lines = official_lines("cifar10", WHOLE, OfficialCheck(official=True))
    assert lines == ["the official CIFAR-10, by the md5 of its files"]
    assert official_lines("sample", WHOLE, OfficialCheck(official=True)) == []
    [more] = official_lines("cifar10", {**WHOLE, "test": 10_001}, OfficialCheck(official=False))
    assert more.endswith("but more: 50,000 of 50,000 train, 10,001 of 10,000 test records")
    others = tuple(OtherFile(file=f"data_batch_{n}", found="a" * 32, published="b" * 32) for n in range(1, 6))
    lines = official_lines("cifar10", WHOLE, OfficialCheck(official=False, others=others))
    assert lines[0] == "not the official CIFAR-10: as many records, but other files"
    assert lines[1] == f"data_batch_1 has md5 {'a' * 32} vs {'b' * 32} published"
    assert lines[4:] == ["and 2 more differ from those published"]
