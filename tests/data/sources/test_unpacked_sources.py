"""What was unpacked of archives is listed and pruned like everything else in a store."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from published import archive_of, write_cifar10_pickles

from podline.cli import cli
from podline.data.sources.opening import open_source
from podline.datasets.fingerprint import source_cache
from podline.store.in_use import release
from podline.store.opening import open_store


def prune(root: Path, *options: str) -> str:
    return CliRunner().invoke(cli, ["store", "prune", "--root", str(root), "--days", "0", *options]).output


def test_unpacked_archives_are_listed_and_pruned_but_not_while_they_are_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    archive = archive_of(write_cifar10_pickles(tmp_path / "cifar-10-batches-py"), tmp_path / "cifar-10-python.tar.gz")
    open_source("cifar10", str(archive), source_cache(open_store(root)))
    listed = CliRunner().invoke(cli, ["store", "list", "--root", str(root)]).output
    [folder] = [line.split()[0] for line in listed.splitlines() if "an unpacked archive  in use" in line]
    assert f"{folder} stays: a living process uses it" in prune(root, "--yes")
    release()
    assert "would be deleted" in prune(root)
    assert Path(folder).is_dir()
    assert "1 folder" in prune(root, "--yes")
    assert not Path(folder).exists()
    open_source("cifar10", str(archive), source_cache(open_store(root)))
    release()
    assert Path(folder).is_dir()
