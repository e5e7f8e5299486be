"""Runs side by side: the page, the picture, and the command that writes them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from finished_pose_run import finished_pose_run
from finished_run import finished_run

from podline.cli import cli
from podline.documents.completion import completion_name, read_completion
from podline.documents.metrics_log import AnnealingLine, EvaluationLine, read_metrics
from podline.errors import StoreError
from podline.inventory.catalogue import run_of
from podline.recipes.settings import AnnealingSettings
from podline.reporting.comparison import _gather as gather
from podline.reporting.comparison import compare, evaluated, labels
from podline.stages.specs import TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


@pytest.fixture
def names(store: Store) -> list[str]:
    """Two runs that differ in one setting and in what annealing made of the second one's states."""
    first = finished_run(Path(store.uri)).run
    spec = TrainSpec.model_validate(store.read_json(f"runs/{first}/spec.json"))
    changed = {"validation_share": 0.1, "annealing": AnnealingSettings(temperature=0.5).model_dump()}
    second = spec.model_copy(update={"recipe": spec.recipe.model_validate(spec.recipe.model_dump() | changed)})
    shutil.copytree(store.local(spec.folder), store.local(second.folder))
    for stage in ("train", "evaluate"):
        record = read_completion(store, spec.folder, stage)
        store.publish_json(completion_name(second.folder, stage), record.model_dump(mode="json"), replace=True)
    store.publish_json(f"{second.folder}/spec.json", second.model_dump(mode="json"), replace=True)
    with store.local(f"{second.folder}/metrics.jsonl").open("a") as file:
        for number, line in enumerate(read_metrics(store.local(f"{spec.folder}/metrics.jsonl"))):
            if isinstance(line, EvaluationLine):
                file.write(rejected(line, number).model_dump_json() + "\n")
    return [first, second.run]


def rejected(line: EvaluationLine, number: int) -> AnnealingLine:
    return AnnealingLine(
        step=line.step, number=number, energy=2, rise=1, temperature=0.1, probability=0, draw=0.5,
        accepted=False, state=0, against=1, time=0,
    )  # fmt: skip


def test_the_page_has_the_figures_of_every_run_and_only_the_settings_that_differ(store, names):
    written = compare(store, [run_of(store, name) for name in names])
    page = store.local(written.html).read_text().replace("\N{NO-BREAK SPACE}", " ")
    for name in names:
        assert page.count(f'<th scope="col">{name}</th>') == 2
    settings = page[page.index("Settings that differ") :]
    assert re.findall(r'<tr><th scope="row">([a-z_.]+)</th>', settings) == [
        "annealing.energy",
        "annealing.temperature",
        "annealing.final",
        "validation_share",
    ]
    assert "<td>–</td><td>0.5</td>" in settings
    assert page.count("5 of 5 states rejected") == 1
    accuracy = json.loads(store.local(f"runs/{names[0]}/stages/evaluate.json").read_text())["result"]["metrics"]["top1"]
    assert f"{100 * accuracy['value']:.1f} % [{100 * accuracy['low']:.1f}, {100 * accuracy['high']:.1f}]" in page


def test_the_page_needs_no_other_file_and_the_picture_is_a_png(store, names):
    written = compare(store, [run_of(store, name) for name in names])
    page = store.local(written.html).read_text()
    assert not re.search(r"(src|href)=\"(?!#|\.\./\.\./index\.html)", page)
    assert store.local(written.png).read_bytes().startswith(b"\x89PNG\r\n")
    assert page.count('role="img"') == 1
    again = compare(store, [run_of(store, name) for name in names])
    assert (again, store.local(again.html).read_text()) == (written, page)


def test_pose_networks_are_compared_by_their_loss_in_evaluations(store):
    runs = [run_of(store, finished_pose_run(Path(store.uri), seed=seed).run) for seed in range(2)]
    page = store.local(compare(store, runs).html).read_text()
    assert "Training loss, loss in evaluations and learning rate" in page
    assert "Error is the share" not in page
    found = gather(store, runs[0])
    assert evaluated(found, "loss") == [line.loss for line in found.evaluations]
    assert len(found.evaluations) == 3
    assert "AP, final" in page


def test_a_run_is_called_by_its_name_and_by_the_few_settings_in_which_it_differs(store, names):
    runs = [gather(store, run_of(store, name)) for name in names]
    assert labels(runs) == [names[0], f"{names[1]} (annealing, validation_share)"]
    few = [
        run.__class__(run.name, {"a": "1", "b": str(place)}, run.lines, run.metrics, run.seconds)
        for place, run in enumerate(runs)
    ]
    assert labels(few) == [f"{names[0]} (b 0)", f"{names[1]} (b 1)"]
    assert labels(few[:1] * 2) == [names[0]] * 2
    many = [
        run.__class__(run.name, {str(path): str(place) for path in range(5)}, run.lines, run.metrics, run.seconds)
        for place, run in enumerate(runs)
    ]
    assert labels(many) == names, "so many settings are too many for a legend"


def test_a_run_that_is_not_evaluated_yet_is_shown_as_far_as_it_is(store, names):
    store.delete(f"runs/{names[1]}/stages/evaluate.json")
    written = compare(store, [run_of(store, name) for name in names])
    assert "<td>–</td>" in store.local(written.html).read_text()


def test_the_command_takes_the_beginnings_of_names(store, names):
    command = ["runs", "compare", names[0], names[1][:-2], "--charts", "--root", store.uri, "--json"]
    answer = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert Path(json.loads(answer.stdout)["png"]).is_file()
    with pytest.raises(StoreError, match=r"2 runs are called cifar10-…; there are: cifar10-"):
        CliRunner().invoke(
            cli, ["runs", "compare", "cifar10-", "x", "--charts", "--root", store.uri], catch_exceptions=False
        )
