"""The stage of docs/how-to/stage.md, which posts the confusion matrix, is a stage like Podline's own."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from http_answers import Request, answering
from prefect.client.orchestration import get_client
from prefect_servers import tasks_of
from raw_cifar import write_easy_cifar
from support.extending import code_of, install

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.base.progress import heard_by, silent
from podline.commands import display
from podline.flows.training import training
from podline.ledger.ledger import entries, names
from podline.stages import table
from podline.stages.base import RunSpec
from podline.stages.supervision import running
from podline.stages.supervision.supervisor import run_stage
from podline.store.opening import open_store
from podline.tasks.forms import MachineGroup, TrainingForm, TrainingGroup

CHAIN = ["convert", "validate", "train", "evaluate", "webhook", "report"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[bytes]]:
    """Install the page's package here and in child processes; yield what is posted to it, at first in vain."""
    code, toml = code_of("## A stage", "python"), code_of("## A stage", "toml")
    folder = install(tmp_path_factory.mktemp("installed"), {"my_stage": code}, toml)
    requests: list[bytes] = []

    def answer(request: Request) -> tuple[int, bytes]:
        requests.append(request.body)
        return (503, b"") if len(requests) == 1 else (204, b"")

    with pytest.MonkeyPatch.context() as installed, answering(answer) as url:
        installed.syspath_prepend(folder)
        installed.setenv("PYTHONPATH", str(folder))
        installed.setenv("CONFUSION_WEBHOOK", url)
        table.loaded.cache_clear()
        yield requests
    table.loaded.cache_clear()
    del sys.modules["my_stage"]


def tasks_of_newest_run() -> dict[str, tuple[str, int]]:
    """Return each task's last state and how often it was run, by the task's name."""
    with get_client(sync_client=True) as client:
        run = max(client.read_flow_runs(), key=lambda run: run.created)
        return {task.name: (str(task.state_name), task.run_count) for task in tasks_of(client, run.id)}


@pytest.fixture
def others_here(stages_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run Podline's own stages in this process, and the package's in one of its own."""
    here = running.run_stage

    def run(spec: Any, *rest: Any, **more: Any) -> Any:
        return (run_stage if table.stage_of(spec).name == "webhook" else here)(spec, *rest, **more)

    monkeypatch.setattr(running, "run_stage", run)


@pytest.mark.usefixtures("prefect_server", "others_here")
def test_a_stage_of_a_package_is_a_stage_like_the_others(
    tmp_path: Path, package: list[bytes], capsys: pytest.CaptureFixture[str], podline: Callable[..., Any]
) -> None:
    source, root = write_easy_cifar(tmp_path / "drawn", test=100), str(tmp_path / "root")
    group = TrainingGroup(model="linear", steps=20, batch_size=20, learning_rate=0.01, schedule="constant")
    form = TrainingForm(recipe="cifar10", source=str(source), training=group, machine=MachineGroup(root=root))
    with display.shown() as listener, heard_by(listener):
        first = training(form)
    run = first["run"]
    assert list(first["stages"]) == CHAIN
    # It is tried again by the class of its error, and seen in the terminal.
    assert tasks_of_newest_run()["webhook"] == ("Completed", 2)
    assert "webhook  ✓" in capsys.readouterr().err
    assert len(package) == 2
    posted = json.loads(package[1])
    assert (posted["run"], len(posted["classes"]), sum(map(sum, posted["confusion"]))) == (run, 10, 100)
    said = f"The confusion matrix was posted to {os.environ['CONFUSION_WEBHOOK']}, which answered 204."
    assert f"<h2>Webhook</h2>\n<p>{said}</p>" in Path(first["report"]).read_text()
    assert "\n## Webhook\n" in Path(first["report_markdown"]).read_text()
    store = open_store(root)
    [entry] = entries(store, names(store))
    assert [retry.stage for retry in entry.retries] == ["webhook"]

    second = training(form)
    assert tasks_of_newest_run() == dict.fromkeys(CHAIN, ("Cached", 1))
    assert all(stage["reused"] for stage in second["stages"].values())

    training(form.model_copy(update={"start_from": "webhook"}))
    assert {name for name, (state, _) in tasks_of_newest_run().items() if state == "Completed"} == {"webhook", "report"}
    assert len(package) == 3

    assert podline("stage", "webhook", run, "--root", root).out.strip() == said
    assert len(package) == 3
    unknown = podline("stage", "webhok", run, "--root", root)
    assert (unknown.code, "got 'webhok', expected a stage of an installed package: webhook" in unknown.err) == (2, True)
    assert "webhook" in podline("runs", "show", run, "--root", root).out
    assert podline("store", "verify", "--root", root).code == 0

    with pytest.MonkeyPatch.context() as patched, display.shown() as listener, heard_by(listener):
        patched.delenv("CONFUSION_WEBHOOK")
        alone = training(form)
    assert (alone["run"], list(alone["stages"])) == (run, [name for name in CHAIN if name != "webhook"])
    problem = "goes on without this stage: stage webhook (my_stage:spec_of): KeyError: 'CONFUSION_WEBHOOK'"
    assert problem in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("find_at", ["no_such_module:find", "my_stage:spec_of"])
def test_a_stage_whose_find_fails_is_named(tmp_path: Path, find_at: str) -> None:
    row = replace(table.installed()["webhook"], find_at=find_at)
    with pytest.raises(SettingsError, match=rf"^stage webhook \({find_at}\): (ModuleNotFound|Attribute)Error: "):
        row.find(RunSpec(root=str(tmp_path), run="r-0", dataset="sample", fingerprint="f"), silent())


@pytest.mark.usefixtures("package")
def test_the_form_offers_to_start_from_it() -> None:
    offered = TrainingForm.model_json_schema()["properties"]["start_from"]["enum"]
    assert offered == ["what is not done", *CHAIN]
    with pytest.raises(SettingsError, match=r"there is no stage 'webhok'; did you mean 'webhook'"):
        TrainingForm(recipe="sample", start_from="webhok")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"webhook",\n    WebhookSpec', '"other",\n    WebhookSpec', r"got the name 'other', expected 'webhook'"),
        ("import os\n", 'import sys\nsys.exit("no licence")\n', r"SystemExit: no licence$"),
        ('after="evaluate"', 'after="convert"', r"got after='convert', .*; expected after to be one of train, "),
        ("STAGE = Stage(", "NO_STAGE = Stage(", r"AttributeError: module 'broken_stage' has no attribute 'STAGE'"),
    ],
)
def test_a_row_that_cannot_be_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, message: str
) -> None:
    (tmp_path / "broken_stage.py").write_text(code_of("## A stage", "python").replace(before, after))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_stage", raising=False)
    point = EntryPoint("webhook", "broken_stage:STAGE", table.ENTRY_POINTS)
    monkeypatch.setattr(entry_points, "installed", lambda group: [point] if group == table.ENTRY_POINTS else [])
    table.loaded.cache_clear()
    assert list(table.in_order()) == list(table.CHAIN), "the others are there"
    [problem] = table.loaded().problems
    assert problem.startswith("stage webhook (broken_stage:STAGE of broken_stage): ")
    assert re.search(message, problem)
    table.loaded.cache_clear()
