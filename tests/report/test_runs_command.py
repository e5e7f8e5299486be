"""``podline runs``: in this process, and as a process of its own where its imports matter."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from finished_nights import entered
from finished_run import finished_run
from ledger_entries import NOON, night

from podline.cli import cli
from podline.documents.metrics_log import AnnealingLine, EvaluationLine
from podline.ledger import ledger
from podline.ledger.inventory.catalogue import train_result
from podline.ledger.ledger import publish
from podline.recipes.measures import metric_text
from podline.report.ledger_lines import lines_of
from podline.stages.specs import EvaluateSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from tests.support.metrics import read_metrics


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "root").mkdir()
    return open_store(tmp_path / "root")


@pytest.fixture
def runs(store: Store, podline):
    """Run ``podline runs`` on the store."""
    return lambda *words: podline("runs", *words, "--root", store.uri)


def test_a_list_is_a_line_for_each_run_the_newest_first(store, runs):
    for entry in (night(0), night(1, state="failed"), night(2, recipe="coco_pose")):
        publish(store, entry)
    assert runs("list").out.splitlines() == [
        "2026-11-23 12:00 UTC  coco_pose  finished    accuracy 80.2 % [75.2, 85.2]              coco_pose-000000000002",
        "2026-11-22 12:00 UTC  cifar10    failed      step 7: the loss is nan                   cifar10-000000000001",
        "2026-11-21 12:00 UTC  cifar10    finished    accuracy 80.0 % [75.0, 85.0]              cifar10-000000000000",
    ]


def test_a_list_is_filtered_and_cut(store, runs):
    for number in range(5):
        publish(store, night(number, code=night().code.model_copy(update={"commit": f"{number}" * 40})))

    def numbers(*options: str) -> list[int]:
        return [int(line[-2:], 16) for line in runs("list", *options)[1].splitlines()]

    assert numbers("--last", "2") == [4, 3]
    assert numbers("--since", "2026-11-22", "--until", "2026-11-24") == [2, 1]
    assert numbers("--commit", "3333") == [3]
    assert numbers("--data", "cifar10", "--last", "3") == [4, 3, 2]
    assert "has no run that ended" in runs("list", "--recipe", "mnist")[1]


def test_why_takes_the_start_of_a_run_s_name_or_an_entry(store, runs, monkeypatch):
    for number in (1, 2):
        publish(store, night(number))
    names = list[str]()
    monkeypatch.setattr("podline.compare.known.evaluated", lambda _store, run: names.append(run))
    monkeypatch.setattr("podline.compare.comparison.compare", lambda *_: pytest.fail("\n".join(names)))
    with pytest.raises(pytest.fail.Exception, match="cifar10-000000000002\ncifar10-000000000001"):
        runs("compare", "cifar10-000000000001", ledger.names(store)[0].name, "--why")


def test_one_run_is_shown_with_what_produced_it(store, runs):
    entry = night(3, attempt=2)
    publish(store, entry)
    said = {line[:18].strip(): line[18:] for line in runs("show", entry.run[:-2]).out.splitlines()[1:]}
    assert said["state"] == "finished 24 November 2026, 12:00 UTC, after 10 min, attempt 2"
    assert said["accuracy"] == "80.3 % [75.3, 85.3]"
    assert said["code"] == "commit c0ffeec0ffee, clean"
    assert said["overridden"] == "seed=3"
    assert said["waited"] == "1.0 s to begin, 2.0 s for the TPU"
    assert json.loads(runs("show", entry.name, "--json")[1]) == entry.model_dump(mode="json")
    assert "least good" in said
    without = night(3, outcome=entry.outcome.changed(parts={}))
    assert not any(line.startswith("least good") for line in lines_of(store, without))


def test_the_table_goes_into_a_file_and_comes_back(store, runs, tmp_path):
    for number in range(3):
        publish(store, night(number))
    assert runs("list", "--export", tmp_path / "nights.xls").code == 2
    for suffix, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        file = tmp_path / f"nights.{suffix}"
        assert runs("list", "--export", file, "--until", "2026-11-23").out.startswith("2 runs, ")
        back = read(file)
        assert back["top1"].tolist() == [0.8, 0.801]
        assert back["name"].tolist() == [named.name for named in reversed(ledger.names(store))][:2]


def test_an_evaluation_whose_command_was_killed_before_it_told_of_it_is_told_when_it_is_found(tmp_path: Path) -> None:
    spec = finished_run(tmp_path / "root")
    store = open_store(spec.root)
    trained = train_result(store, spec.run)
    judged = EvaluateSpec(
        **spec.model_dump(include={"root", "run", "dataset", "fingerprint"}), weights_sha256=trained.weights_sha256
    )
    store.publish_bytes(f"{spec.folder}/model/weights.npz", b"weights")
    for _ in range(2):
        given = judged.model_dump_json()
        answer = CliRunner().invoke(cli, ["evaluate", "--spec", "-"], input=given, catch_exceptions=False)
        assert answer.exit_code == 0
        [named] = ledger.names(store)
        assert (named.state, ledger.read(store, named.name).run) == ("finished", spec.run)


def test_runs_are_compared_on_a_page_with_results_differences_and_verdicts(store: Store, podline) -> None:
    """The runs differ in their seed and in what annealing made of the second one's states."""
    specs = [finished_run(Path(store.uri), seed=seed) for seed in (1, 2)]
    file = store.local(f"{specs[1].folder}/metrics.jsonl")
    judged = {"number": 0, "energy": 2, "rise": 1, "temperature": 0.1, "probability": 0, "draw": 0.5}
    judged |= {"accepted": False, "state": 0, "against": 1, "time": 0}
    evaluations = [line for line in read_metrics(file) if isinstance(line, EvaluationLine)]
    rejected = [AnnealingLine.model_validate({"step": line.step} | judged) for line in evaluations]
    with file.open("a") as stream:
        stream.writelines(f"{line.model_dump_json()}\n" for line in rejected)
    entries = [entered(spec, NOON + 60 * place) for place, spec in enumerate(specs)]
    command = ("runs", "compare", entries[0].run, entries[1].run[:-2], "--charts", "--root", store.uri)
    written = json.loads(podline(*command, "--json").out)
    page = Path(written["html"]).read_text()
    assert "var(--" not in Path(written["svg"]).read_text(), "a picture of its own has its own colours"
    text = re.sub(r"</?span[^>]*>", "", page).replace("\N{NO-BREAK SPACE}", " ")
    for place, entry in enumerate(entries, start=1):
        assert page.count(f'<th scope="col">{place}: {entry.run}</th>') == 2
        assert f"<td>{metric_text('top1', entry.outcome.main)}</td>" in text
    assert '<th scope="row">settings</th><td>seed</td><td>1</td><td>2</td>' in page
    assert f"</strong>: {entries[1].run} is " in text
    assert re.findall("<h2>(.*?)</h2>", page) == ["What next", "What differs", "Curves", "Results"]
    header = text[: text.index("<h2>")]
    assert "<h1><strong>No clear difference</strong>" in header
    assert f"podline models predict {entries[0].run} " in text


def test_runs_are_compared_in_text(store, runs):
    nights = (night(0), night(1), night(2, state="failed"))
    for entry in nights:
        publish(store, entry)
    out = runs("compare", *(entry.run for entry in nights)).out
    assert out.splitlines()[:2] == ["settings", "  seed: 0 → 1 → 2"]
    assert "this run has no evaluation" in out
    assert runs("compare", night(0).run).code == 2
