"""What was unpacked of archives is listed and pruned like everything else in a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from published import archive_of, write_cifar10_pickles

from podline.cli import cli
from podline.data.sources.opening import open_source
from podline.datasets.fingerprint import source_cache
from podline.store.locks import release
from podline.store.opening import open_store


def prune(root: Path, *options: str) -> str:
    return CliRunner().invoke(cli, ["store", "prune", "--root", str(root), "--days", "0", *options]).output


@pytest.mark.usefixtures("parsed_here")
def test_unpacked_archives_are_listed_and_pruned_but_not_while_they_are_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    archive = archive_of(write_cifar10_pickles(tmp_path / "cifar-10-batches-py"), tmp_path / "cifar-10-python.tar.gz")
    open_source("cifar10", str(archive), source_cache(open_store(root)))
    listed = CliRunner().invoke(cli, ["store", "list", "--root", str(root)]).output
    folders = [line.split()[0] for line in listed.splitlines() if "a cached source  in use" in line]
    assert len(folders) == 7  # the archive's files, and the pixels of each batch
    said = prune(root, "--yes")
    assert all(f"{folder} stays: a living process uses it" in said for folder in folders)
    release()
    assert "would be deleted" in prune(root)
    assert all(Path(folder).is_dir() for folder in folders)
    assert "7 folders" in prune(root, "--yes")
    assert not any(Path(folder).exists() for folder in folders)
    open_source("cifar10", str(archive), source_cache(open_store(root)))
    release()
    assert all(Path(folder).is_dir() for folder in folders)
