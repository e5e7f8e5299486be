"""A run in a folder that another process has taken over: the former writer has its files open, and harms nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from metrics_lines import steps_line

from podline.base.errors import OtherWriterError
from podline.documents.metrics_log import EVENTS, METRICS, EventLog, MetricsLog
from podline.store import fences
from podline.store.folder import FolderStore
from podline.store.one_writer import Writer
from podline.training.train import _copy_open_files

RUN = "runs/r"


def test_lines_of_a_former_writer_do_not_reach_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODLINE_STORE_LEASE", "0.3")
    store = FolderStore(tmp_path / "root")
    first, second = (Writer(store, RUN, name) for name in ("first", "second"))
    first.take(tmp_path / "first.owner", lambda holder: None)
    events = EventLog(store.local(f"{RUN}/{EVENTS}"), first.require)
    events.write("started", 0, "first")
    with MetricsLog(store.local(f"{RUN}/{METRICS}")) as log:
        log.write(steps_line(1, 1.0))
        second.take(tmp_path / "second.owner", lambda holder: None)
        with fences.put(store.uri, RUN, second):
            _copy_open_files(store, RUN)
        before = {name: store.read_bytes(f"{RUN}/{name}") for name in (METRICS, EVENTS)}
        log.write(steps_line(2, 2.0))
        with pytest.raises(OtherWriterError):
            events.write("preempted", 2, "too late")
    assert {name: store.read_bytes(f"{RUN}/{name}") for name in before} == before
    assert before[METRICS].count(b"\n") == before[EVENTS].count(b"\n") == 1
