"""Every second of a run has one class, also where a training was killed and went on."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from dying_runs import Killed
from ledger_entries import night, outcome
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline.base import stopwatch
from podline.base.errors import ChildKilledError
from podline.base.progress import Reporter, silent
from podline.commands.runs import runs_group
from podline.data.reader import SplitReader
from podline.documents.ledger_entry import Entry, WaitingTime
from podline.documents.metrics_log import EvaluationLine, EventKind, EventLine, StepsLine
from podline.ledger import ledger
from podline.ledger.killed import Unfinished, write_killed
from podline.ledger.recording import recorded
from podline.ledger.time_spent import CLASSES, Attempt, in_words, time_of_training, time_spent
from podline.recipes.durations import Duration
from podline.report.openmetrics import openmetrics
from podline.stages.specs import TrainSpec
from podline.store.locks import locked
from podline.store.opening import open_store
from podline.training.train import train

T = TypeVar("T")


FIGURES = {"step": 1, "epoch": 1.0, "loss": 1.0}
RATES = {"learning_rate": 0.1, "gradient_norm": 1.0, "gradient_norms": {}, "examples_per_second": 1.0, "losses": (1.0,)}


def steps(time: float, seconds: float, waiting: float, spans: dict[str, float]) -> StepsLine:
    measured = {"waiting": waiting, "seconds": seconds, "time": time, "spans": spans}
    return StepsLine.model_validate(FIGURES | RATES | measured)


def evaluation(time: float, seconds: float, spans: dict[str, float]) -> EvaluationLine:
    measured = {"split": "test", "examples": 1, "seconds": seconds, "time": time, "spans": spans}
    return EvaluationLine.model_validate(FIGURES | measured)


def event(time: float, kind: EventKind, spans: dict[str, float] | None = None) -> EventLine:
    return EventLine(time=time, event=kind, step=0, message="", spans=spans or {})


# Starts at 100 s; steps until 140 s, a tenth of it waiting for input; evaluated; a checkpoint takes 5 s; killed at 170.
FIRST = [
    steps(120, 10, 0.1, {"store": 2.0, "tracing": 9.0}),
    steps(140, 30, 0.1, {"store": 2.0, "tracing": 9.0}),
    evaluation(144, 4, {"store": 2.0, "tracing": 9.0, "evaluation": 4.0}),
    steps(149, 30, 0.0, {"store": 5.0, "tracing": 9.0, "evaluation": 4.0, "saving": 2.0}),
]
GOES_ON = [
    steps(220, 50, 0.5, {"tracing": 10.0, "store": 1.0}),
    evaluation(226, 6, {"tracing": 10.0, "store": 1.0, "evaluation": 6.0}),
]
EVENTS = [
    event(100, "started", {"store": 2.0}),
    event(190, "restored", {"store": 1.0}),
    event(229, "finished", {"tracing": 10.0, "store": 1.0, "evaluation": 6.0, "saving": 2.0}),
]


def test_a_killed_training_that_goes_on_loses_what_came_after_its_checkpoint():
    attempts = [
        Attempt("convert", 10, 40, 25, kept=True, spans={"store": 4.0}, around={"between": 2.0, "store": 1.0}),
        Attempt("validate", 41, 42, 0, kept=True),
        Attempt("train", 42, 170, 0, kept=False),
        Attempt("train", 180, 230, 100, kept=True, spans={"tracing": 10.0, "store": 1.5, "evaluation": 6, "saving": 2}),
        Attempt("evaluate", 230, 238, 7, kept=True),
        Attempt("webhook", 238, 239, 1, kept=True),
        Attempt("report", 239, 245, 5, kept=True),
    ]
    around = {"between": 5.0 + 10.0, "store": 1.0}
    spent = time_spent(240, WaitingTime(start=10, retries=10), attempts, [*FIRST, *GOES_ON], EVENTS, around)
    assert spent == {
        "steps": 30 * 0.9 + 20 * 0.5,
        "input": 30 * 0.1 + 20 * 0.5,
        "tracing": 9 + 10,
        "saving": 2 + 2,
        "evaluation": 4 + 6 + 7,
        "lost": 170 - 149,
        "store": 4 + 2 + 3 + 1 + 0.5 + 1,
        "starting": 5 - 3 + 1 + 56 + 9 + 0.5 + 1 + 1,
        "converting": 21,
        "report": 5,
        "other": 1,
        "due": 10,
        "retries": 10,
        "between": 5,
        # Of each training one second; and what was between stages and not measured.
        "unattributed": 1 + 1 + 3,
    }
    assert sum(spent.values()) == 250
    assert in_words(spent).startswith("4 min 10 s: 28.2 % starting and ending processes")
    alone = time_of_training([*FIRST, *GOES_ON], EVENTS)
    assert (alone["lost"], sum(alone.values())) == (190 - 149, 229 - 100)


def test_a_training_that_saved_what_it_had_loses_nothing_and_waiting_for_a_tpu_is_no_time_of_a_stage():
    events = [event(100, "started"), event(155, "preempted")]
    for began, waiting in ((90, WaitingTime()), (0, WaitingTime(tpu=60, repairs=30))):
        attempts = [Attempt("train", began, 155, 0, kept=True)]
        spent = time_spent(155 - began, waiting, attempts, FIRST, events, {})
        assert "lost" not in spent
        assert (spent.get("tpu", 0), spent["starting"]) == (90 - began, 10)
        assert sum(spent.values()) == 155 - began


def test_a_finished_training_whose_log_is_damaged_is_time_that_was_not_measured():
    spent = time_spent(100, WaitingTime(), [Attempt("train", 0, 100, 90, kept=True)], (), (), {})
    assert spent == {"starting": 10, "unattributed": 90}


def dies_at_35(event: Any) -> None:
    """Kill the process a second after it came to step 35."""
    if event["event"] == "progress" and event["done"] >= 35:
        time.sleep(1.0)
        raise Killed


def in_thread(work: Callable[[], T]) -> T:
    """What a function returns; in a thread, which has a stopwatch of its own, as the process of a stage has."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def test_a_killed_training_tells_what_it_lost_and_how_long_it_waited_for_input(tmp_path, monkeypatch):
    gather = SplitReader.gather

    def slow(*arguments: Any) -> Any:
        time.sleep(0.1)
        return gather(*arguments)

    publish_dataset(tmp_path)
    monkeypatch.setattr(SplitReader, "gather", slow)
    monkeypatch.setattr("podline.training.loop._NEWS_SECONDS", -1.0)
    recipe = small_recipe(duration=Duration(steps=40), evaluate_every=None, summary_steps=10, checkpoint_steps=10)
    spec = TrainSpec(root=str(tmp_path), recipe=recipe, fingerprint=FINGERPRINT, preflight=False)
    store = open_store(tmp_path)
    with recorded(store, "t", "commands", silent()) as notes:
        notes.asked(spec)
        with pytest.raises(Killed):
            in_thread(lambda: train(spec, Reporter("train", dies_at_35)))
        notes.retried("train", ChildKilledError("SIGKILL"), 0.0)
        result = in_thread(lambda: train(spec, silent()).model_copy(update={"spans": stopwatch.spans()}))
        notes.answered(spec, result, result.seconds)
    entry = ledger.read(store, notes.entry.name)
    # Each class is rounded to milliseconds.
    assert sum(entry.spent.values()) == pytest.approx(entry.seconds, abs=0.0006 * len(CLASSES))
    assert entry.spent.get("unattributed", 0.0) < 0.02 * entry.seconds, entry.spent
    # After step 30 was saved, five steps of a tenth of a second, and the second of dying.
    assert 1.0 < entry.spent["lost"] < 2.5
    # Batches are read ahead, while the first step is traced; each of the others waits, on a busy machine for longer.
    assert 2.0 < entry.spent["input"] < 9.0


def test_what_scrapers_read_is_openmetrics():
    spent = {"steps": 50.0, "starting": 10.5}
    old, new = (night(number, outcome=outcome(0.7 + number / 100), spent=spent) for number in range(2))
    by_hand = new.model_copy(update={"started": "hand"})
    found = {
        (sample.name, sample.labels.get("class", "")): sample.value
        for family in text_string_to_metric_families(openmetrics([old, new, by_hand]))
        for sample in family.samples
    }
    assert found == {
        ("podline_night_ended_timestamp_seconds", ""): new.ended,
        ("podline_night_finished", ""): 1.0,
        ("podline_night_seconds", "steps"): 50.0,
        ("podline_night_seconds", "starting"): 10.5,
        ("podline_night_result", ""): pytest.approx(0.71),
    }
    assert set(spent) <= set(CLASSES)


WORK = """
    import sys, time
    from podline.ledger import killed
    from podline.ledger.recording import recorded
    from podline.base.progress import silent
    from podline.stages.base import (Result)
    from podline.stages.specs import (ValidateSpec)
    from podline.store.opening import open_store

    root, fingerprint, finished = sys.argv[1:]
    spec = ValidateSpec(root=root, dataset="sample", fingerprint=fingerprint, manifest_sha256="0" * 64)
    killed._BEAT_SECONDS = 0.5
    with recorded(open_store(root), "t", "flow", silent(), flow_run="f1") as notes:
        notes.asked(spec)
        time.sleep(1.0)
        if finished == "finished":
            notes.answered(spec, Result(seconds=0.9), 1.0)
        print("begun", flush=True)
        time.sleep(60)
"""


@contextmanager
def begun(root: Path, *, finished: bool) -> Iterator[subprocess.Popen[bytes]]:
    """A run that goes on: a stage of one second, and then nothing."""
    publish_dataset(root)
    arguments = [str(root), FINGERPRINT, "finished" if finished else ""]
    command = [sys.executable, "-c", textwrap.dedent(WORK), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        yield process
        process.kill()


def entries(root: Path) -> list[Entry]:
    store = open_store(root)
    return [ledger.read(store, named.name) for named in ledger.names(store)]


@pytest.mark.parametrize(("finished", "again"), [(False, False), (True, False), (False, True)])
def test_the_time_of_a_killed_run_is_lost_but_for_the_stages_that_were_done(tmp_path, finished, again):
    with begun(tmp_path, finished=finished) as process:
        write_killed(open_store(tmp_path))
        assert entries(tmp_path) == []  # it lives
        time.sleep(1.5)  # until its next sign of life
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    if again:  # what was lost goes on until the run itself goes on
        time.sleep(2.0)
        with recorded(open_store(tmp_path), "t", "flow", silent(), flow_run="f1") as notes:
            notes.dropped = True
    CliRunner().invoke(runs_group, ["list", "--root", str(tmp_path)], catch_exceptions=False)
    [entry] = entries(tmp_path)
    assert (entry.state, entry.error, entry.flow_run) == ("failed", "ChildKilledError", "f1")
    assert "last sign of life" in entry.cause
    assert (3.5 if again else 1.5) < entry.seconds < 60.0
    assert sum(entry.spent.values()) == pytest.approx(entry.seconds, rel=0.02)
    assert entry.spent.get("validating", 0.0) == pytest.approx(0.9 if finished else 0.0)
    rest = entry.seconds - entry.spent["lost"] - entry.spent.get("between", 0.0) - entry.spent.get("store", 0.0)
    assert rest == pytest.approx(1.0 if finished else 0.0, abs=0.5)
    write_killed(open_store(tmp_path))
    assert len(entries(tmp_path)) == 1


def test_notes_that_cannot_be_read_now_are_left_to_the_next_run(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    folder = store.own_folder("unfinished", "run~1")
    (folder / "notes.json").write_text(Unfinished(entry=night()).model_dump_json())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", Mock(side_effect=OSError(errno.EIO, "I/O error")))
        write_killed(store)
    assert entries(tmp_path) == []
    write_killed(store)
    assert [entry.state for entry in entries(tmp_path)] == ["failed"]
    assert not folder.exists()


def test_an_upgrade_does_not_lose_the_entry_of_a_run_that_was_killed_under_podline_1_0(tmp_path):
    store = open_store(tmp_path)
    folder = store.own_folder("unfinished")
    for name in ("0a", "0b"):
        (folder / f"{name}.json").write_text(Unfinished(entry=night()).model_dump_json())
    (folder / "0a.lock").touch()
    with locked(folder / "0b.lock"):
        write_killed(store)
        assert [entry.state for entry in entries(tmp_path)] == ["failed"]
        assert {path.name for path in folder.iterdir()} == {"0b.json", "0b.lock"}, "a process still runs"
