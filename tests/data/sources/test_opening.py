from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from published import (
    archive_of,
    same_content,
    write_archive,
    write_cifar10_bins,
    write_cifar10_pickles,
    write_cifar100_bins,
    write_cifar100_pickles,
    write_mnist,
)

from podline.data.sources import class_names
from podline.data.sources.opening import open_source
from podline.errors import SourceError

pytestmark = pytest.mark.usefixtures("parsed_here")

LAYOUTS: list[tuple[str, str, str, Callable[[Path], Path]]] = [
    ("cifar100", "cifar-100-python", "cifar-100-python.tar.gz", write_cifar100_pickles),
    ("cifar100", "cifar-100-binary", "cifar-100-binary.tar.gz", write_cifar100_bins),
]


@pytest.mark.parametrize(("dataset", "folder", "archive", "write"), LAYOUTS)
def test_every_place_gives_the_same_source(
    tmp_path: Path, dataset: str, folder: str, archive: str, write: Callable[[Path], Path]
) -> None:
    work = tmp_path / "work"
    write(tmp_path / "raw" / folder)
    itself = open_source(dataset, str(tmp_path / "raw" / folder), work)
    same_content(itself, open_source(dataset, str(tmp_path / "raw"), work))
    parsed = len(list(work.glob("*/files.json")))

    (tmp_path / "archives").mkdir()
    archive_of(tmp_path / "raw" / folder, tmp_path / "archives" / archive)
    packed = open_source(dataset, str(tmp_path / "archives" / archive), work)
    same_content(itself, packed)
    same_content(itself, open_source(dataset, str(tmp_path / "archives"), work))
    renamed = (tmp_path / "archives" / archive).rename(tmp_path / "renamed.tgz")
    same_content(itself, open_source(dataset, str(renamed), work))
    assert len(list(work.glob("*/files.json"))) == parsed + 1, "unpacked once, parsed once"


def test_damage_in_the_cache_is_repaired(tmp_path: Path) -> None:
    folder = write_cifar10_bins(tmp_path / "cifar-10-batches-bin")
    archive = archive_of(folder, tmp_path / "a.tar.gz")
    path = Path(open_source("cifar10", str(archive), tmp_path / "work").splits[0].blocks[0].path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes((whole[-1] ^ 1,)))
    plain = open_source("cifar10", str(folder), tmp_path / "other")
    same_content(plain, open_source("cifar10", str(archive), tmp_path / "work"))
    assert path.read_bytes() == whole


def test_errors_name_the_archive(tmp_path: Path) -> None:
    folder = write_cifar10_bins(tmp_path / "cifar-10-batches-bin")
    (folder / "test_batch.bin").write_bytes(b"\x63" * 3073)
    archive = archive_of(folder, tmp_path / "a.tar.gz")
    with pytest.raises(SourceError) as caught:
        open_source("cifar10", str(archive), tmp_path / "work")
    assert str(caught.value).startswith(f"{archive}/cifar-10-batches-bin/test_batch.bin: labels[0] is 99 vs 0 to 9")


def refused(dataset: str, uri: Path | str, work: Path) -> str:
    with pytest.raises(SourceError) as caught:
        open_source(dataset, str(uri), work)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_hostile_archive_leaves_nothing(tmp_path: Path) -> None:
    write_cifar10_pickles(tmp_path / "raw")
    members = {f"c/{path.name}": path.read_bytes() for path in (tmp_path / "raw").iterdir()}
    (tmp_path / "in").mkdir()
    archive = write_archive(tmp_path / "in" / "cifar-10-python.tar.gz", {**members, "../x": b"x"})
    for uri in (archive, archive.parent):
        assert "OutsideDestinationError: '../x' would be" in refused("cifar10", uri, tmp_path / "w")
    assert [path for path in (tmp_path / "w").rglob("*") if path.is_file()] == []
    assert not any(tmp_path.rglob("x"))


def test_nothing_there(tmp_path: Path) -> None:
    work = tmp_path / "work"
    assert f"{tmp_path}/no does not exist; get it with `podline data download mnist {tmp_path}/no`" in refused(
        "mnist", tmp_path / "no", work
    )
    (tmp_path / "empty").mkdir()
    message = refused("cifar10", tmp_path / "empty", work)
    assert message.startswith(f"{tmp_path}/empty is empty vs data_batch_1 and the other files of CIFAR-10")
    assert f"`podline data download cifar10 {tmp_path}/empty`" in message
    assert f"`podline data draw {tmp_path}/empty`" in refused("sample", tmp_path / "empty", work)
    (tmp_path / "other").mkdir()
    for name in "abcdefgh":
        (tmp_path / "other" / name).touch()
    (tmp_path / "other" / "train").mkdir()
    assert "other holds a, b, c, d, e, f … vs train and the other files of CIFAR-100" in refused(
        "cifar100", tmp_path / "other", work
    )
    assert "give a folder or a file as a source, on this machine or in gs://" in refused(
        "cifar10", "s3://bucket/cifar", work
    )


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "data.zip").write_bytes(b"PK\x03\x04")
    assert "cannot be read as a .tar.gz: BadGzipFile: Not a gzipped file" in refused(
        "cifar10", tmp_path / "data.zip", tmp_path / "work"
    )
    archive = write_archive(tmp_path / "a.tar.gz", {"readme": b"hello"})
    assert "a.tar.gz does not hold data_batch_1" in refused("cifar10", archive, tmp_path / "work")


def test_missing_batches(tmp_path: Path) -> None:
    folder = write_cifar10_pickles(tmp_path / "cifar-10-batches-py")
    for name in ("data_batch_2", "test_batch"):
        (folder / name).unlink()
    message = refused("cifar10", tmp_path, tmp_path / "work")
    assert "has CIFAR-10 in python layout without data_batch_2, test_batch; unpack the official archive" in message


def test_a_whole_layout_beside_part_of_another(tmp_path: Path) -> None:
    write_cifar10_bins(tmp_path)
    shutil.copy(write_cifar10_pickles(tmp_path / "elsewhere") / "data_batch_1", tmp_path)
    assert open_source("cifar10", str(tmp_path), tmp_path / "work").files[0].name == "data_batch_1.bin"


def test_another_data_set(tmp_path: Path) -> None:
    work = tmp_path / "work"
    mnist, hundred = write_mnist(tmp_path / "mnist"), write_cifar100_pickles(tmp_path / "in" / "cifar-100-python")
    assert f"{mnist} holds MNIST vs cifar10 asked for; use `podline run mnist --source {mnist}`" in refused(
        "cifar10", mnist, work
    )
    assert "holds CIFAR-100 in python layout vs cifar10 asked for; use `podline run cifar100" in refused(
        "cifar10", tmp_path / "in", work
    )
    archive = archive_of(hundred, tmp_path / "cifar-100-python.tar.gz")
    for uri in (archive, tmp_path):
        assert "holds CIFAR-100 in python layout vs sample asked for" in refused("sample", uri, work)
    ten = write_cifar10_pickles(tmp_path / "ten")
    assert "holds CIFAR-10 in python layout vs mnist asked for; use `podline run cifar10" in refused("mnist", ten, work)


def test_sample_and_cifar10_are_told_apart_by_their_classes(tmp_path: Path) -> None:
    ten, drawn = write_cifar10_bins(tmp_path / "ten"), write_cifar10_bins(tmp_path / "drawn")
    (drawn / "batches.meta.txt").write_text("\n".join(class_names.SAMPLE))
    assert open_source("sample", str(drawn), tmp_path).class_names == class_names.SAMPLE
    assert "has the classes of sample (disc, ring, …) vs cifar10 asked for; use `podline run sample" in refused(
        "cifar10", drawn, tmp_path
    )
    assert "has the classes of cifar10 (airplane, automobile, …) vs sample asked for" in refused(
        "sample", ten, tmp_path
    )
