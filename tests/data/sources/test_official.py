"""Whether a data set is the one that is published under its name."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from published import archive_of, write_cifar10_pickles

from podline.data.official import CIFAR10, OfficialCheck, check_official
from podline.data.sources.opening import open_source


def checked(dataset: str, place: Path) -> OfficialCheck:
    source = open_source(dataset, str(place), place.parent / "work")
    check = check_official(dataset, source.raw, source.archive)
    assert check is not None
    return check


def test_the_real_mnist_is_the_published_one_and_one_byte_makes_it_another(tmp_path: Path, real_data: Path) -> None:
    shutil.copytree(real_data / "mnist", tmp_path / "other")
    assert checked("mnist", tmp_path / "other") == OfficialCheck(official=True)
    labels = tmp_path / "other" / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(gzip.decompress(labels.read_bytes()))
    content[20] = (content[20] + 1) % 10
    labels.write_bytes(gzip.compress(content))
    check = checked("mnist", tmp_path / "other")
    assert (check.official, [other.file for other in check.others]) == (False, ["t10k-labels-idx1-ubyte"])


def test_an_archive_is_compared_as_well(tmp_path: Path) -> None:
    renamed = archive_of(write_cifar10_pickles(tmp_path / "cifar-10-batches-py"), tmp_path / "my.tar.gz")
    check = checked("cifar10", renamed)
    assert check.official is False
    assert [other.file for other in check.others][-1] == "cifar-10-python.tar.gz"
    assert check.others[-1].published == CIFAR10.archive_md5("cifar-10-python.tar.gz")
