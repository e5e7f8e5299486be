"""The index of nights is written when a training flow ends, well or not, and never in its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from podline.base.errors import DivergenceError
from podline.base.progress import Event
from podline.store.folder import FolderStore
from podline.tasks import run
from podline.tasks.run import index_afterwards


def test_it_is_there_after_a_night_that_failed_which_stays_failed(tmp_path: Path) -> None:
    with pytest.raises(DivergenceError), index_afterwards(FolderStore(tmp_path)):
        raise DivergenceError("step 7: the loss is nan")
    assert (tmp_path / "index.html").is_file()


def test_a_cancelled_night_ends_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), index_afterwards(FolderStore(tmp_path)):
        raise KeyboardInterrupt
    assert not (tmp_path / "index.html").exists()


def test_a_damaged_entry_is_named_on_the_page(tmp_path: Path) -> None:
    damaged = tmp_path / "ledger" / "20261121T120000Z-cifar10-finished-01234567.json"
    damaged.parent.mkdir()
    damaged.write_text("{}")
    with index_afterwards(FolderStore(tmp_path)):
        pass
    assert damaged.name in (tmp_path / "index.html").read_text()


def test_an_index_that_cannot_be_written_is_warned_of_and_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index.html").mkdir()
    told: list[Event] = []
    monkeypatch.setattr(run, "stage_listener", lambda _stage: told.append)
    with index_afterwards(FolderStore(tmp_path)):
        pass
    assert "the index of nights is not up to date" in str(told)
