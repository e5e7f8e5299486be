"""A store of another user: what may be read is read, and what may not is one line and exit code 5."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ledger_entries import night
from small_dataset import publish_dataset

from podline.ledger import ledger
from podline.store.folder import FolderStore

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can make another user's store"
)
NOBODY = 65534
Podline = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of nobody's with a data set, a night, and scratch folders."""
    store = FolderStore(tmp_path / "root")
    publish_dataset(store.uri)
    ledger.publish(store, night())
    for scratch in ("unfinished", "sources/archive", "tmp/left~1", "uses"):
        store.own_folder(*scratch.split("/"))
    FolderStore(store.root / "sources" / "sample").own_folder("tmp")
    for path in (store.root, *store.root.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return store.root


@pytest.fixture
def podline(root: Path) -> Podline:
    """Run a command line on the store, without root's right to enter any folder."""
    command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", sys.executable, "-m", "podline.cli"]

    def run(words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words.split(), "--root", str(root)], capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.parametrize("command", ["runs list", "data list", "store list", "store verify", "models list"])
def test_readers_skip_the_scratch_folders(podline: Podline, command: str) -> None:
    done = podline(command)
    assert done.returncode == 0, done.stderr


def test_writers_and_those_who_may_not_read_get_one_line(root: Path, podline: Podline) -> None:
    for command in ("runs nights", "validate sample", "store prune"):
        done = podline(command)
        assert done.returncode == 5, done.stderr
        assert "permission denied; choose a --root that this user can write\n" in done.stderr
    root.chmod(0o700)
    for command in ("runs list", "data list", "store list"):
        done = podline(command)
        assert done.returncode == 5, done.stderr
        assert "permission denied (Permission denied); give this user access to it\n" in done.stderr
