"""A published data set is found in a folder or an archive; what is there instead is said."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from published import (
    archive_of,
    same_content,
    write_archive,
    write_cifar10_bins,
    write_cifar10_pickles,
    write_cifar100_pickles,
    write_mnist,
)

from podline.base.errors import SourceError
from podline.cli import cli
from podline.data.sources import class_names
from podline.data.sources.opening import open_source
from podline.data.versions.fingerprint import source_cache
from podline.recipes.official import CIFAR10, OfficialCheck, OtherFile, remarks
from podline.store.opening import open_store
from podline.store.uses import _leases

pytestmark = pytest.mark.usefixtures("parsed_here")


def test_every_place_gives_the_same_source(tmp_path: Path) -> None:
    work, folder = tmp_path / "work", "cifar-100-python"
    write_cifar100_pickles(tmp_path / "raw" / folder)
    itself = open_source("cifar100", str(tmp_path / "raw" / folder), work)
    same_content(itself, open_source("cifar100", str(tmp_path / "raw"), work))
    parsed = len(list(work.glob("*/files.json")))
    (tmp_path / "archives").mkdir()
    archive = archive_of(tmp_path / "raw" / folder, tmp_path / "archives" / f"{folder}.tar.gz")
    for place in (archive, archive.parent):
        same_content(itself, open_source("cifar100", str(place), work))
    same_content(itself, open_source("cifar100", str(archive.rename(tmp_path / "renamed.tgz")), work))
    assert len(list(work.glob("*/files.json"))) == parsed + 1, "unpacked once, decoded once"


def test_a_whole_layout_beside_part_of_another(tmp_path: Path) -> None:
    write_cifar10_bins(tmp_path)
    shutil.copy(write_cifar10_pickles(tmp_path / "elsewhere") / "data_batch_1", tmp_path)
    assert open_source("cifar10", str(tmp_path), tmp_path / "work").files[0].name == "data_batch_1.bin"


def refused(dataset: str, place: Path | str, work: Path) -> str:
    with pytest.raises(SourceError) as caught:
        open_source(dataset, str(place), work)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders and files that are not what is asked for."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "empty").mkdir()
    (folder / "other" / "train").mkdir(parents=True)
    for name in "abcdefgh":
        (folder / "other" / name).touch()
    write_archive(folder / "readme.tar.gz", {"readme": b"hello"})
    write_mnist(folder / "mnist")
    archive_of(write_cifar100_pickles(folder / "in" / "cifar-100-python"), folder / "in" / "cifar-100-python.tar.gz")
    write_cifar10_pickles(folder / "ten")
    write_cifar10_bins(folder / "bins")
    (write_cifar10_bins(folder / "drawn") / "batches.meta.txt").write_text("\n".join(class_names.SAMPLE))
    lacking = write_cifar10_pickles(folder / "lacking" / "cifar-10-batches-py")
    for name in ("data_batch_2", "test_batch"):
        (lacking / name).unlink()
    damaged = write_cifar10_bins(folder / "damaged")
    (damaged / "test_batch.bin").write_bytes(b"\x63" * 3073)
    archive_of(damaged, folder / "damaged.tar.gz")
    return folder


@pytest.mark.parametrize(
    ("dataset", "place", "told"),
    [
        ("cifar10", " ", "got an empty source, expected a folder or a file; check whether a variable is empty"),
        ("cifar10", "~nobody-here/cifar", "there is no such user; give the whole path"),
        ("cifar10", "s3://bucket/cifar", "give a folder or a file as a source, on this machine or in gs://"),
        ("mnist", "no", "no does not exist; get it with `podline data download mnist /"),
        ("cifar10", "empty", "empty is empty, expected data_batch_1 and the other files of CIFAR-10"),
        ("sample", "empty", "`podline data draw /"),
        ("cifar100", "other", "other contains a, b, c, d, e, f and 3 more, expected train and the other files of"),
        ("cifar10", "readme.tar.gz", "readme.tar.gz does not contain data_batch_1"),
        ("cifar10", "mnist", "mnist contains MNIST, expected cifar10; use `podline run mnist --source /"),
        ("sample", "in", "contains CIFAR-100 in python layout, expected sample"),
        ("cifar10", "drawn", "has the classes of sample (disc, ring, …), expected cifar10; use `podline run sample"),
        ("sample", "bins", "has the classes of cifar10 (airplane, automobile, …), expected sample"),
        ("cifar10", "lacking", "has CIFAR-10 in python layout without data_batch_2, test_batch; unpack the official"),
        ("cifar10", "ten/batches.meta", "ten/batches.meta is one file of a data set, expected the folder"),
        ("cifar10", "damaged.tar.gz", "damaged.tar.gz/damaged/test_batch.bin: labels[0] is 99 vs 0 to 9"),
    ],
)
def test_what_is_there_instead_is_said(places: Path, tmp_path: Path, dataset: str, place: str, told: str) -> None:
    assert told in refused(dataset, place if "://" in place or place[0] in " ~" else places / place, tmp_path)


def _end() -> None:
    """Use no cache any more, as after the end of this process."""
    for lease in _leases.values():
        lease.close()


def test_unpacked_archives_are_listed_and_pruned_but_not_while_they_are_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    archive = archive_of(write_cifar10_pickles(tmp_path / "cifar-10-batches-py"), tmp_path / "cifar-10-python.tar.gz")

    def store(*command: str) -> str:
        return CliRunner().invoke(cli, ["store", *command, "--root", str(root)]).output

    open_store(root).mark()
    open_source("cifar10", str(archive), source_cache(open_store(root)))
    listed = store("list").splitlines()
    folders = [Path(line.split()[0]) for line in listed if "a cached source  in use" in line]
    assert len(folders) == 7  # the archive's files, and the pixels of each batch
    said = store("prune", "--days", "0", "--yes")
    assert all(f"{folder} stays: a running process uses it" in said for folder in folders)
    _end()
    assert "would be deleted" in store("prune", "--days", "0")
    assert all(folder.is_dir() for folder in folders)
    assert "7 folders" in store("prune", "--days", "0", "--yes")
    assert not any(folder.exists() for folder in folders)
    open_source("cifar10", str(archive), source_cache(open_store(root)))
    _end()
    assert all(folder.is_dir() for folder in folders)


def checked(dataset: str, place: Path) -> OfficialCheck:
    check = open_source(dataset, str(place), place.parent / "work").official
    assert check
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
    assert not check.official
    last = check.others[-1]
    assert (last.file, last.published) == ("cifar-10-python.tar.gz", CIFAR10.archive_md5("cifar-10-python.tar.gz"))


def test_a_data_set_that_is_not_the_published_one_is_told_with_both_sums() -> None:
    whole = {"train": 50_000, "test": 10_000}
    others = tuple(OtherFile(file=f"data_batch_{n}", found="a" * 32, published="b" * 32) for n in range(1, 6))
    assert len(remarks("cifar10", whole, (), OfficialCheck(official=True), {})) == 1
    assert remarks("sample", whole, (), OfficialCheck(official=True), {}) == []
    check = OfficialCheck(official=False, others=others)
    lines = remarks("cifar10", {**whole, "test": 10_001}, (), check, {})
    assert "50,000 of 50,000 train, 10,001 of 10,000 test records" in lines[0]
    assert lines[1] == f"data_batch_1 has md5 {'a' * 32} vs {'b' * 32} published"
    assert lines[4:] == ["and 2 more differ from those published"]
