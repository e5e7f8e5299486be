"""A TPU log goes on from one attempt to the next, and the budgets of repairs with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from podline.errors import ArtifactError
from podline.reporting import tables
from podline.store.opening import open_store
from podline.tpu.tpu_log import MOST, Event, TpuLog, Tried
from podline.tpu.tpu_log_file import FILE, KeptTpuLog, read_tpu_log


def test_the_next_attempt_knows_what_was_tried_and_a_new_stage_begins_afresh(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    assert read_tpu_log(store, "runs/a") == ()
    first = KeptTpuLog(store, "runs/a", lambda _line: None)
    first.tell(0.0, Event.BEGIN, "train")
    first.waited(1.0, "not healthy", 30.0)
    first.tell(2.0, Event.RESTART, "ill")
    second = KeptTpuLog(store, "runs/a", lambda _line: None)
    assert second.entries == first.entries
    assert second.tried() == Tried(restarts=1)
    second.tell(3.0, Event.BEGIN, "evaluate")
    assert second.tried() == Tried()
    assert "| 1970-01-01 00:00:01 | wait | not healthy | 30 s |" in tables.tpu(read_tpu_log(store, "runs/a")).markdown()


def test_a_damaged_story_is_named(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.publish_json(f"runs/a/{FILE}", [{"at": "never"}])
    with pytest.raises(ArtifactError, match=r"tpu\.json is no log of a TPU"):
        read_tpu_log(store, "runs/a")


def test_a_long_story_is_told_in_fewer_entries_and_nothing_that_counts_is_lost(tmp_path: Path) -> None:
    tpu_log = KeptTpuLog(open_store(str(tmp_path)), "runs/a", lambda _line: None)
    for night in range(100):
        at = 86_400.0 * night
        tpu_log.tell(at, Event.BEGIN, "train")
        for minute in range(10):
            tpu_log.waited(at + 60 * minute, f"for {('this', 'that')[minute % 2]}", 60.0)
        tpu_log.tell(at + 601, Event.RESTART, "ill")
        tpu_log.tell(at + 700, Event.GO, "well", 700.0)
        tpu_log.tell(at + 900, Event.HANG if night == 99 else Event.LEAVE, "the end")
    kept = read_tpu_log(open_store(str(tmp_path)), "runs/a")
    assert kept == tpu_log.entries
    assert len(kept) <= MOST
    assert [entry.event for entry in kept[:2]] == ["earlier", "begin"]
    left_out = int(kept[0].what.split()[0])
    begins = sum(entry.event is Event.BEGIN for entry in kept)
    assert left_out >= 4 * (100 - begins), "a night is at least a wait, a restart, a go and a leave"
    assert "0 s" not in [row["took"] for row in tpu_log.rows()]
    assert tpu_log.tried() == Tried(restarts=1)
    assert tpu_log.hung


def test_waits_that_follow_one_another_become_one_that_took_as_long() -> None:
    tpu_log = TpuLog()
    tpu_log.tell(0.0, Event.BEGIN, "train")
    for minute in range(MOST):
        tpu_log.waited(60.0 * minute, f"for {minute % 2}", 60.0 + minute % 2)
    waits = [entry for entry in tpu_log.entries if entry.event is Event.WAIT]
    assert len(tpu_log.entries) < MOST
    assert sum(entry.took for entry in waits) == 60.5 * MOST
    assert waits[0].what == "for 1 (and other waits)"
