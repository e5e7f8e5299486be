"""``podline runs``: in this process, and as a process of its own where its imports matter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from finished_run import finished_run
from ledger_entries import NOON, night

from podline import cli
from podline.inventory.catalogue import run_of
from podline.ledger import ledger
from podline.ledger.ledger import publish
from podline.stages.specs import EvaluateSpec, TrainResult
from podline.store.contract import Store
from podline.store.opening import open_store


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
    code, out, _err = runs("list")
    assert code == 0
    assert out.splitlines() == [
        "2026-11-23 12:00  coco_pose  finished    accuracy 80.2 % [75.2, 85.2]                coco_pose-000000000002",
        "2026-11-22 12:00  cifar10    failed      step 7: the loss is nan                     cifar10-000000000001",
        "2026-11-21 12:00  cifar10    finished    accuracy 80.0 % [75.0, 85.0]                cifar10-000000000000",
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
    assert "no such run has ended" in runs("list", "--recipe", "mnist")[1]


def test_json_is_one_document_with_every_column(store, runs):
    assert json.loads(runs("list", "--json")[1]) == []
    for number in range(2):
        publish(store, night(number))
    rows = json.loads(runs("list", "--json")[1])
    assert [row["seed"] for row in rows] == [1, 0]
    assert rows[1]["ended"] == NOON
    assert rows[0]["top1_low"] == pytest.approx(0.751)
    assert rows[0]["ap"] is None


def test_one_run_is_shown_with_what_produced_it(store, runs):
    entry = night(3, attempt=2)
    publish(store, entry)
    code, out, _err = runs("show", entry.run[:-2])
    assert code == 0
    said = {line[:18].strip(): line[18:] for line in out.splitlines()[1:]}
    assert said["state"] == "finished 24 November 2026, 12:00 UTC, after 10 min, attempt 2"
    assert said["accuracy"] == "80.3 % [75.3, 85.3]"
    assert said["least good"].startswith("cat 60.0 %")
    assert said["code"] == "commit c0ffeec0ffee, clean"
    assert said["overridden"] == "seed=3"
    assert said["waited"] == "1.0 s to begin, 2.0 s for the TPU"
    assert json.loads(runs("show", entry.name, "--json")[1]) == entry.model_dump(mode="json")


def test_a_run_that_is_not_there_is_an_error_in_a_line(runs):
    code, _out, err = runs("show", "mnist")
    assert code == 5
    assert "no run has ended in this store" in err


def test_runs_are_compared_by_their_names(store, runs):
    for number in range(2):
        publish(store, night(number))
    code, out, _err = runs("compare", night(0).run, night(1).run)
    assert code == 0
    assert out.splitlines()[:2] == ["settings", "  seed: 0 → 1"]
    document = json.loads(runs("compare", night(0).run, night(1).run, "--json")[1])
    assert [row["name"] for row in document["differences"]] == ["seed"]
    assert document["verdicts"][0]["difference"]["paired"] is False
    assert runs("compare", night(0).run)[0] == 2


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_table_goes_into_a_file_and_comes_back(store, runs, tmp_path, suffix):
    for number in range(3):
        publish(store, night(number))
    file = tmp_path / f"nights.{suffix}"
    code, out, _err = runs("list", "--export", file, "--until", "2026-11-23")
    assert (code, out.split()[:2]) == (0, ["2", "runs,"])
    back = pd.read_csv(file) if suffix == "csv" else pd.read_parquet(file)
    assert back["top1"].tolist() == [0.8, 0.801]
    assert back["name"].tolist() == [named.name for named in reversed(ledger.names(store))][:2]


def test_a_file_of_another_kind_is_refused(runs, tmp_path):
    code, _out, err = runs("list", "--export", tmp_path / "nights.xls")
    assert code == 2
    assert "a name that ends in .xls, expected .csv or .parquet" in err


def test_a_list_loads_neither_pandas_nor_numpy(store):
    publish(store, night(0))
    script = "import sys; sys.argv[1:] = {!r}; from podline import cli\ntry: cli.main()\nexcept SystemExit: pass\n"
    script += "print(sorted({{'pandas', 'numpy', 'matplotlib', 'tensorflow'}} & sys.modules.keys()))"
    arguments = ["runs", "list", "--root", store.uri]
    done = subprocess.run(
        [sys.executable, "-c", script.format(arguments)], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_evaluation_whose_command_was_killed_before_it_told_of_it_is_told_when_it_is_found(tmp_path: Path) -> None:
    spec = finished_run(tmp_path / "root")
    store = open_store(spec.root)
    trained = TrainResult.model_validate(run_of(store, spec.run).stages["train"].result)
    judged = EvaluateSpec(
        **spec.model_dump(include={"root", "run", "dataset", "fingerprint"}), weights_sha256=trained.weights_sha256
    )
    store.publish_bytes(f"{spec.folder}/model/weights.npz", b"weights")
    for _ in range(2):
        given = judged.model_dump_json()
        answer = CliRunner().invoke(cli.cli, ["evaluate", "--spec", "-"], input=given, catch_exceptions=False)
        assert answer.exit_code == 0
        [named] = ledger.names(store)
        assert (named.state, ledger.read(store, named.name).run) == ("finished", spec.run)
