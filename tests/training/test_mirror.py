"""The mirror of a run: failures of this machine's disk lose no file of the run, here or in the store."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import numpy as np
import pytest

from podline.base.errors import PodlineError, StoreError
from podline.base.progress import silent
from podline.documents.log_writers import LogMark
from podline.store.folder import FolderStore, mirror_of
from podline.training import mirror
from podline.training.checkpoints import CheckpointFolder, TimeSpent
from podline.training.mirror import Mirror

FOLDER = "runs/x"
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("failure", "error", "words"),
    [
        (FULL, StoreError, "no space left on the device"),
        (FileNotFoundError(errno.ENOENT, "No such file", "the copy"), StoreError, "No such file"),
        (KeyError("odd"), PodlineError, "KeyError: .odd"),
    ],
)
def test_a_run_that_cannot_be_uploaded_stays_on_this_machine(tmp_path: Path, monkeypatch, failure, error, words):
    def fails(_source: Path, _target: Path) -> None:
        raise failure

    far = FolderStore(tmp_path)
    checkpoints = CheckpointFolder(mirror_of(far), FOLDER, "digest")
    monkeypatch.setattr(mirror.shutil, "copyfile", fails)
    with pytest.raises(error, match=f"{words}.*the run is kept in "), Mirror(far, FOLDER, 60.0, silent()):
        checkpoints.save(1, {"x": np.arange(3)}, LogMark(bytes=0, sha256="0"), TimeSpent())
    monkeypatch.undo()
    with Mirror(far, FOLDER, 60.0, silent()):
        assert checkpoints.steps() == [1]
    assert CheckpointFolder(far, FOLDER, "digest").steps() == [1]


def test_an_interrupted_fetch_damages_no_checkpoint_of_the_store(tmp_path: Path, monkeypatch):
    far = FolderStore(tmp_path)
    checkpoints = CheckpointFolder(far, FOLDER, "digest")
    for step in (1, 2):
        checkpoints.save(step, {"x": np.arange(step)}, LogMark(bytes=0, sha256="0"), TimeSpent())
    copy = shutil.copyfile

    def fails(source: Path, target: Path) -> None:
        if source.name == "step-00000002.npz":
            target.write_bytes(b"a part")
            raise FULL
        copy(source, target)

    monkeypatch.setattr(mirror.shutil, "copyfile", fails)
    with pytest.raises(StoreError, match="no space left"), Mirror(far, FOLDER, 60.0, silent()):
        pass
    monkeypatch.undo()
    with pytest.raises(KeyError), Mirror(far, FOLDER, 60.0, silent()):
        raise KeyError
    for step in (1, 2):
        np.testing.assert_array_equal(checkpoints.arrays(checkpoints.describe(step))["x"], np.arange(step))
