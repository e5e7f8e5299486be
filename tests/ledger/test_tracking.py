"""Runs at a tracking server: logged once, updated when the run ends again, and never in a run's way."""

from __future__ import annotations

import importlib.util
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from finished_run import finished_run

from podline.base.progress import Event, Reporter
from podline.ledger.inventory.catalogue import train_result, training_of
from podline.ledger.recording import recorded
from podline.settings.machine import Settings
from podline.stages.specs import ReportResult
from podline.store.opening import open_store

needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="the extra mlflow is not installed"
)


def night(root: Path, tracking: str) -> list[str]:
    """Record a run whose stages were all done before; return the warnings."""
    store, events = open_store(root), list[Event]()
    (run,) = (path.name for path in (root / "runs").iterdir())
    training, trained = training_of(store, run), train_result(store, run)
    with recorded(store, "cifar10", "flow", Reporter("ledger", events.append)) as notes:
        notes.planned(training.recipe, Settings(root=str(root), tracking=tracking), "cpu")
        notes.asked(training)
        notes.answered(training, trained, 600.0)
        notes.answered(training, ReportResult(html="report.html", markdown="page.md"), 0.1)
    return [event["message"] for event in events if event["event"] == "log" and event["level"] == "warning"]


@pytest.fixture
def tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str, str]:
    """A root with a finished run, its name, and the setting of a tracker."""
    monkeypatch.chdir(tmp_path)  # MLflow names a folder in it for files of runs, and makes none
    for variable in ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(variable, {"MLFLOW_DISABLE_TELEMETRY": "true"}.get(variable, "1"))
    run = finished_run(tmp_path / "root").run
    open_store(tmp_path / "root").publish_bytes(f"runs/{run}/model/weights.npz", b"weights")
    return tmp_path / "root", run, f"mlflow:sqlite:///{tmp_path / 'tracking.db'}"


def runs(tracking: str) -> list[Any]:
    import mlflow  # noqa: PLC0415 (an extra)

    client = mlflow.MlflowClient(tracking.removeprefix("mlflow:"))
    return list(client.search_runs([client.get_experiment_by_name("podline/cifar10").experiment_id]))


def points(tmp_path: Path) -> int:
    with sqlite3.connect(tmp_path / "tracking.db") as database:
        return int(database.execute("select count(*) from metrics").fetchone()[0])


@needs_mlflow
def test_a_run_is_logged_whole_and_once_though_it_ends_again(tracked, tmp_path: Path, capsys) -> None:
    root, run, tracking = tracked
    assert night(root, tracking) == []
    assert capsys.readouterr().out == ""  # what --json prints is there
    (found,) = runs(tracking)
    assert (found.info.run_name, found.info.status) == (run, "FINISHED")
    assert found.data.params["schedule.learning_rate"] == "0.1"
    assert found.data.metrics["train/learning_rate"] == pytest.approx(0.4 * 20 / 1060)
    assert {"test/accuracy", "train/gradient_norm/stem"} <= found.data.metrics.keys()
    low, value, high = (found.data.metrics[f"evaluation/top1{end}"] for end in ("/low", "", "/high"))
    assert low < value < high
    assert found.data.tags["podline.model"] == str(root / "runs" / run / "model/weights.npz")
    assert found.data.tags["mlflow.note.content"] == f"Report: `{root / 'report.html'}`"
    before = points(tmp_path)
    night(root, tracking)
    (again,) = runs(tracking)
    assert (again.info.run_id, points(tmp_path)) == (found.info.run_id, before)


@needs_mlflow
def test_a_server_that_does_not_answer_is_a_warning(tracked: tuple[Path, str, str]) -> None:
    root, _, _ = tracked
    (warning,) = night(root, "mlflow:http://127.0.0.1:9")
    assert warning.startswith("the run could not be logged to mlflow:http://127.0.0.1:9: ")
    assert warning.endswith("; to log it, repeat the command of the run")
