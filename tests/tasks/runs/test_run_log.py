"""What a stage tells its Prefect run: neither a server nor a console that is gone may cost the stage anything."""

from __future__ import annotations

import logging
import threading
from typing import Any
from unittest.mock import Mock

import pytest

from podline.progress import to_logger
from podline.tasks.runs import run_log


def progress(done: int) -> dict[str, Any]:
    return {"event": "progress", "stage": "train", "done": done, "total": 4, "unit": "steps", "metrics": {}}


def test_a_server_that_is_away_keeps_nobody_waiting_and_gets_the_newest_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    back, written = threading.Event(), []

    def show(_stage: str, share: float, _words: str) -> None:
        back.wait(240)
        written.append(share)

    monkeypatch.setattr(run_log, "show", show)
    clock = iter(range(0, 1000, 10))
    artifact = run_log.ProgressCard("train", lambda: float(next(clock)))
    for done in (1, 2, 3):
        artifact(progress(done))
    assert written == []
    back.set()
    artifact(progress(4))
    assert len(written) <= 2
    assert written[-1] == 100.0


def test_a_card_says_where_the_work_is_done_or_for_whom_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[Any, ...]] = []
    monkeypatch.setattr(run_log, "show", lambda *card: written.append(card))
    event = progress(4) | {"metrics": {"workers": 2.0}, "note": "dask:scheduler:8786 RUNNING http://scheduler:8787"}
    run_log.ProgressCard("convert")(event)
    assert "workers" in written[-1][2]
    assert written[-1][2].endswith("dask:scheduler:8786 RUNNING http://scheduler:8787")
    card = run_log.ProgressCard("train")
    card({"event": "waiting", "stage": "train", "message": "waits for its turn: train of runs/first"})
    if card._writer is not None:
        card._writer.join(240)
    assert written[-1] == ("train", 0.0, "train: waits for its turn: train of runs/first")


def test_a_server_that_refuses_and_a_console_whose_reader_is_gone_end_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "show", Mock(side_effect=ConnectionError))
    run_log.ProgressCard("train")(progress(4))

    class Gone(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise SystemExit(1)  # as rich.console.Console.on_broken_pipe does

    logger = logging.Logger("gone")
    logger.addHandler(Gone())
    event = {"event": "log", "stage": "train", "level": "info", "message": "words"}
    with pytest.raises(SystemExit):
        to_logger(logger)(event)
    run_log._whatever_the_console_does(to_logger(logger))(event)
