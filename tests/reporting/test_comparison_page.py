"""Runs side by side: the page, the chart, and the command that writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from finished_nights import entered
from finished_pose_run import entered as pose_entered
from finished_pose_run import finished_pose_run
from finished_run import NOON, finished_run

from podline.cli import cli
from podline.documents.ledger_entry import Entry
from podline.documents.metrics_log import AnnealingLine, EvaluationLine, read_metrics
from podline.errors import StoreError
from podline.figures import metric_text
from podline.reporting.comparison import RunsComparison
from podline.reporting.comparison_page import labels, write
from podline.store.contract import Store
from podline.store.opening import open_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return open_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def entries(store: Store) -> list[Entry]:
    """Two runs that differ in their seed and in what annealing made of the second one's states."""
    specs = [finished_run(Path(store.uri), seed=seed) for seed in (1, 2)]
    file = store.local(f"{specs[1].folder}/metrics.jsonl")
    rejected = [_rejected(line) for line in read_metrics(file) if isinstance(line, EvaluationLine)]
    with file.open("a") as stream:
        stream.writelines(f"{line.model_dump_json()}\n" for line in rejected)
    return [entered(spec, NOON + 60 * place) for place, spec in enumerate(specs)]


def _rejected(line: EvaluationLine) -> AnnealingLine:
    return AnnealingLine(
        step=line.step, number=0, energy=2, rise=1, temperature=0.1, probability=0, draw=0.5,
        accepted=False, state=0, against=1, time=0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(store: Store, entries: list[Entry]) -> str:
    return store.local(write(store, entries).html).read_text()


def test_the_page_has_results_differences_and_verdicts(entries: list[Entry], page: str) -> None:
    text = re.sub(r"</?span[^>]*>", "", page).replace("\N{NO-BREAK SPACE}", " ")
    for place, entry in enumerate(entries, start=1):
        assert page.count(f'<th scope="col">{place}: {entry.run}</th>') == 2
        assert entry.outcome is not None
        assert f"<td>{metric_text('top1', entry.outcome.main)}</td>" in text
    assert '<th scope="row">settings</th><td>seed</td><td>1</td><td>2</td>' in page
    assert f"<li>{entries[1].run}: accuracy is " in text


def test_the_page_needs_no_other_file_and_the_chart_is_one(store: Store, entries: list[Entry], page: str) -> None:
    written = write(store, entries)
    assert not re.search(r"(src|href)=\"(?!#|\.\./\.\./index\.html)", page)
    assert page.count('role="img"') == 1
    assert store.local(written.html).read_text() == page
    chart = store.local(written.svg).read_text()
    assert chart.startswith("<svg xmlns=")
    assert "var(--" not in chart


def test_pose_networks_are_compared_by_their_loss_in_evaluations(tmp_path: Path) -> None:
    specs = [finished_pose_run(tmp_path, seed=seed) for seed in range(2)]
    store = open_store(tmp_path)
    page = store.local(write(store, [pose_entered(spec, place) for place, spec in enumerate(specs)]).html).read_text()
    assert "Training loss, loss in evaluations and learning rate" in page
    assert "Error is the share" not in page
    assert '<th scope="row">AP</th>' in page


def test_a_run_is_called_by_its_name_and_by_the_few_settings_in_which_it_differs() -> None:
    def compared(count: int) -> RunsComparison:
        rows = [{"area": "settings", "name": f"s{place}", "values": ("–", "2")} for place in range(count)]
        named = {"names": ("a", "b"), "runs": ("a", "b"), "results": {}, "verdicts": ()}
        return RunsComparison.model_validate({**named, "differences": rows})

    assert labels(compared(2)) == ["a", "b (s0 2, s1 2)"]
    assert labels(compared(5)) == ["a", "b"], "so many settings are too many for a legend"


def test_the_command_takes_the_beginnings_of_names(store: Store, entries: list[Entry]) -> None:
    command = ["runs", "compare", entries[0].run, entries[1].run[:-2], "--charts", "--root", store.uri, "--json"]
    answer = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert Path(json.loads(answer.stdout)["svg"]).is_file()
    with pytest.raises(StoreError, match=r"0 entries are called x…"):
        CliRunner().invoke(cli, [*command[:3], "x", *command[4:]], catch_exceptions=False)
