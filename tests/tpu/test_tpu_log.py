"""The TPU log: it goes on from one attempt to the next, and the budgets of repairs with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from podline.base.errors import ArtifactError
from podline.report.blocks import Table
from podline.store.contract import Listed
from podline.store.folder import FolderStore
from podline.store.opening import open_store
from podline.tpu.tpu_log import FILE, Event, TpuLog, Tried, read_tpu_log, rows


def test_the_next_attempt_knows_what_was_tried_and_a_new_stage_begins_afresh(tmp_path: Path) -> None:
    store, lines = open_store(str(tmp_path)), list[str]()
    assert read_tpu_log(store, "runs/a") == ()
    first = TpuLog(lines.append, store, "runs/a")
    first.tell(0.0, Event.BEGIN, "train")
    first.waited(1.0, "not healthy", 30.0)
    first.waited(31.0, "not healthy", 30.0)
    second = TpuLog(lines.append, store, "runs/a")
    second.tell(61.0, Event.RESTART, "ill", 100.0, worked=False)
    assert first.entries == second.entries
    assert first.tried() == Tried(restarts=1)
    assert lines == ["begin: train", "waiting: not healthy", "restart: ill (1 min 40 s)"]
    second.tell(200.0, Event.BEGIN, "evaluate")
    assert second.tried() == Tried()
    kept = read_tpu_log(store, "runs/a")
    assert rows(kept)[1] == {"when": "1970-01-01 00:00:01", "event": "wait", "what": "not healthy", "took": "1 min"}
    assert "| 1970-01-01 00:00:01 | wait | not healthy | 1 min |" in Table.of(rows(kept), words=4).markdown()


def test_two_machines_that_write_at_a_time_keep_both_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (TpuLog(store=open_store(str(tmp_path)), folder="runs/a") for _ in range(2))
    one.tell(0.0, Event.BEGIN, "train")
    find = FolderStore.find

    def found(store: FolderStore, name: str) -> Listed | None:
        listed = find(store, name)
        if name == f"runs/a/{FILE}":  # the other one writes after this look, and before this write
            monkeypatch.setattr(FolderStore, "find", find)
            other.waited(1.0, "not healthy", 30.0)
        return listed

    monkeypatch.setattr(FolderStore, "find", found)
    one.tell(2.0, Event.GO, "node")
    assert [entry.event for entry in one.entries] == [Event.BEGIN, Event.WAIT, Event.GO]


def test_a_hang_counts_until_a_repair_has_worked() -> None:
    tpu_log = TpuLog()
    for event, worked, hung in [(Event.HANG, True, True), (Event.RESTART, False, True), (Event.RECREATE, True, False)]:
        tpu_log.tell(0.0, event, "", worked=worked)
        assert tpu_log.hung is hung


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.publish_json(f"runs/a/{FILE}", {"entries": [{"at": "never"}]})
    with pytest.raises(ArtifactError, match=r"tpu\.json is not a log of a TPU"):
        read_tpu_log(store, "runs/a")
