"""A run's card and artifacts say how far it is and what came of it; a lost server or console costs a stage nothing."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from podline.base import errors
from podline.stages.specs import ReportResult, TrainResult
from podline.store.opening import open_store
from podline.store.page_links import PageLinks
from podline.tasks import shown
from podline.tasks.artifacts import report_text
from podline.tasks.shown import open_card, say_first, show, stage_listener
from podline.tasks.stops import remedies


def progress(done: int) -> dict[str, Any]:
    return {"event": "progress", "stage": "train", "done": done, "total": 4, "unit": "steps", "metrics": {}}


def test_a_server_that_is_away_keeps_nobody_waiting_and_gets_the_newest_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    back, written = threading.Event(), []

    def show(_stage: str, share: float, _words: str) -> None:
        back.wait(240)
        written.append(share)

    monkeypatch.setattr(shown, "show", show)
    clock = iter(range(0, 1000, 10))
    artifact = shown.ProgressCard("train", lambda: float(next(clock)))
    for done in (1, 2, 3):
        artifact(progress(done))
    assert written == []
    back.set()
    artifact(progress(4))
    assert len(written) <= 2
    assert written[-1] == 100.0


def test_a_card_says_where_the_work_is_done_or_for_whom_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[Any, ...]] = []
    monkeypatch.setattr(shown, "show", lambda *card: written.append(card))
    event = progress(4) | {"metrics": {"workers": 2.0}, "note": "dask:scheduler:8786 RUNNING http://scheduler:8787"}
    shown.ProgressCard("convert")(event)
    assert "workers" in written[-1][2]
    assert written[-1][2].endswith("dask:scheduler:8786 RUNNING http://scheduler:8787")
    card = shown.ProgressCard("train")
    card({"event": "waiting", "stage": "train", "message": "waits for its turn: train of runs/first"})
    if card._writer is not None:
        card._writer.join(240)
    assert written[-1] == ("train", 0.0, "waits for its turn: train of runs/first")


def test_a_server_that_refuses_and_a_console_whose_reader_is_gone_end_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    # As rich.console.Console.on_broken_pipe does.
    logger = Mock(log=Mock(side_effect=SystemExit(1)))
    monkeypatch.setattr(shown, "get_run_logger", lambda: logger)
    monkeypatch.setattr(shown, "show", Mock(side_effect=ConnectionError))
    tell = stage_listener("train")
    tell({"event": "log", "stage": "train", "level": "info", "message": "words"})
    tell(progress(4))
    logger.log.assert_called_once()


STAGES = ("convert", "validate", "train", "evaluate", "promote", "report")


@task
def stage(name: str) -> None:
    tell = stage_listener(name)
    if name == "train":
        tell({"event": "progress", "stage": name, "done": 3, "total": 4, "unit": "steps", "metrics": {}})
    tell({"event": "result", "stage": name, "result": {}})


said: list[list[dict[str, Any]]] = []


@flow(retries=1)
def night(recipe: str) -> str:
    open_card(recipe, STAGES)
    if flow_run.run_count == 1:
        said.append(listed(str(flow_run.id)))
        stage("convert")
        say_first(recipe, "**Failed.** of the first start", "Failed: of the first start")
        said.append(listed(str(flow_run.id)))
        raise ValueError("of the first start")
    show("convert", 100.0, "reused after verification")
    for name in ("validate", "train"):
        stage(name)
    return str(flow_run.id)


def listed(run: str) -> list[dict[str, Any]]:
    """A run's artifacts as Prefect's UI asks for them: in the order that the server has them by itself."""
    filter_ = {"flow_run_id": {"any_": [run]}, "type": {"not_any_": ["result"]}}
    with get_client(sync_client=True) as client:
        return client._client.post("/artifacts/filter", json={"artifacts": filter_}).json()


@pytest.mark.usefixtures("prefect_server")
def test_one_card_says_what_failed_and_then_how_far_each_stage_is_also_after_a_retry() -> None:
    [card] = listed(night("coco_pose"))
    assert (card["key"], card["type"], card["task_run_id"]) == ("coco-pose-progress", "markdown", None)
    # What was said of the first start is over; what was done is shown again.
    begun, _, _, _, *rows = card["data"].splitlines()
    assert re.match(r"Begun 20..-..-.. ..:.. UTC\. If this run is \*Crashed\*, its process was ended", begun)
    shares = {"convert": "100 % | reused after verification", "validate": "100 % | done", "train": "100 % | done"}
    assert rows == [f"| {name} | {shares.get(name, '0 % | not begun')} |" for name in STAGES]
    assert card["description"] == "train: done"
    [[new], [first]] = said
    assert new["data"].startswith("Begun 20")
    assert new["data"].count("| 0 % | not begun |") == len(STAGES)
    assert first["data"].startswith("**Failed.** of the first start\n\n| stage |")
    assert "| convert | 100 % | done |" in first["data"]
    assert first["description"] == "Failed: of the first start"


MARKDOWN = "# 80 %\n\nof them.\n\n## Figures\n\n| a |\n\n## Data\n"
TRAINED = TrainResult.model_construct(folder="runs/it")
REPORTED = ReportResult(html="runs/it/report.html", markdown="runs/it/report.md")


def test_the_report_is_its_verdict_and_a_link(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.publish_bytes(REPORTED.markdown, MARKDOWN.encode())
    lines = report_text(store, TRAINED, REPORTED, PageLinks(store), "> As before.").splitlines()
    assert lines[0] == f"Open the report: `{tmp_path}/runs/it/report.html` · all nights: `{tmp_path}/index.html`"
    assert [line for line in lines[1:-1] if line] == ["> As before.", "# 80 %", "of them."]
    assert lines[-1] == f"TensorBoard: `tensorboard --logdir {tmp_path}/runs/it/tensorboard`"


def test_every_kind_of_failure_has_advice_in_the_table_of_failed_runs() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PodlineError)]
    assert {kind.heading for kind in kinds} <= set(remedies())
    assert remedies()["Training diverged"] == "see `docs/reference/findings.md`"
    assert remedies()["Engine lost"] == "see `docs/how-to/engines.md#what-goes-wrong`"
