"""The index of nights: every night of the ledger, in a folder and in a bucket, written by two at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from ledger_entries import night, outcome

from podline import ledger
from podline.champions import Candidate, crown
from podline.cli import cli
from podline.ledger_entry import Entry
from podline.reporting import nights_page
from podline.reporting.nights_page import MOST_ROWS, index_page, write_index
from podline.stages import Metric
from podline.storage import Store, open_store


def _nights(count: int, **changes):
    """Nights with models that differ, the oldest first."""
    for number in range(count):
        model = outcome(0.7 + number / 100, weights_sha256=f"{number:064x}")
        yield night(number, outcome=model, report=f"runs/cifar10-{number:012x}/report.html", **changes)


def _rows(page: str) -> list[str]:
    return re.findall(r"<tr><th scope=\"row\">.*?</tr>", page)


def test_every_night_is_a_row_the_newest_first_with_its_figures() -> None:
    entries = [*_nights(3), night(3, state="failed", run="")]
    page = index_page("the store", entries)
    rows = _rows(page)
    assert len(rows) == 4
    assert "DivergenceError" not in rows[0]
    assert "step 7: the loss is nan" in rows[0]
    assert 'href="runs/cifar10-000000000002/report.html"' in rows[1]
    assert "72.0\N{NO-BREAK SPACE}%" in rows[1]
    assert "+1.0 points" in rows[1]
    assert "points" not in rows[3]
    assert "was cancelled" not in page
    assert "on 24 November 2026, 12:00 UTC, failed: step 7: the loss is nan" in page


def test_every_figure_is_the_ledgers() -> None:
    entries = {entry.name: entry.model_dump(mode="json") for entry in _nights(5)}
    page = index_page("the store", [Entry.model_validate(entry) for entry in entries.values()])
    quoted = re.findall(r'<data value="([^"]+)" data-source="([^"]+)">', page)
    assert len(quoted) >= 3 * len(entries)
    for value, source in quoted:
        name, _, path = source.partition(".")
        found = entries[name]
        for key in path.split("."):
            found = found[key]
        assert float(value) == found


def test_only_what_is_beyond_chance_has_a_colour() -> None:
    models = [outcome(value, weights_sha256=f"{place:064x}") for place, value in enumerate((0.5, 0.9, 0.89, 0.6))]
    rows = _rows(index_page("s", [night(number, outcome=model) for number, model in enumerate(models)]))[::-1]
    assert [re.findall(r'class="change (\w+)"', row) for row in rows] == [[], ["better"], ["noise"], ["worse"]]


def test_what_was_reused_and_who_is_champion_are_told() -> None:
    reused = {stage: night().stages[stage].model_copy(update={"reused": True}) for stage in night().stages}
    entries = [night(0), night(1, stages=reused), night(2, stages=night().stages | {"convert": reused["convert"]})]
    rows = _rows(index_page("s", entries, {"cifar10": entries[1].run}))
    assert [("champion" in row, re.findall(r"<td>(all|convert|)</td>", row)[0]) for row in rows] == [
        (False, "convert"),
        (True, "all"),
        (False, ""),
    ]


def test_an_empty_store_has_a_page_too(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert "0 nights" in store.local(write_index(store)).read_text()


def test_hostile_names_are_text() -> None:
    entry = night(0, state="failed", cause="<script>alert(1)</script>" * 30)
    page = index_page("<b>store</b>", [entry])
    assert "<script" not in page
    assert "<b>store" not in page


def test_a_thousand_and_more_nights_stay_a_small_page() -> None:
    page = index_page("s", _nights(MOST_ROWS + 7))
    assert len(_rows(page)) == MOST_ROWS
    assert "7 older ones" in page
    assert len(page) < 2_000_000


def _publish(store: Store, count: int) -> None:
    for entry in _nights(count):
        ledger.publish(store, entry)


def test_the_command_writes_it_into_the_store_or_elsewhere(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    _publish(store, 3)
    answer = CliRunner().invoke(cli, ["runs", "index", "--root", store.uri, "--json"], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["html"] == str(tmp_path / "root" / "index.html")
    assert len(_rows((tmp_path / "root" / "index.html").read_text())) == 3
    out = tmp_path / "nights.html"
    CliRunner().invoke(cli, ["runs", "index", "--root", store.uri, "--out", str(out)], catch_exceptions=False)
    assert f'href="{(tmp_path / "root" / "runs").as_uri()}/cifar10-000000000002/report.html"' in out.read_text()


def test_the_champion_of_the_store_is_marked(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    _publish(store, 2)
    crown(store, "cifar10", Candidate("cifar10-000000000000", "0" * 64, "cifar10", "0" * 16), None, "promoted")
    rows = _rows(store.read_bytes(write_index(store)).decode())
    assert ["champion" in row for row in rows] == [False, True]


def test_in_a_bucket(gcs_root: str) -> None:
    store = open_store(gcs_root)
    _publish(store, 2)
    page = store.read_bytes(write_index(store)).decode()
    assert len(_rows(page)) == 2


def test_a_night_that_ends_meanwhile_is_in_the_index_of_whoever_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    _publish(store, 1)
    made = nights_page.index_page

    def overtaken(*arguments, **options):
        page = made(*arguments, **options)
        if len(ledger.names(store)) == 1:
            ledger.publish(store, night(5))
            write_index(store)
        return page

    monkeypatch.setattr(nights_page, "index_page", overtaken)
    write_index(store)
    assert len(_rows((tmp_path / "index.html").read_text())) == 2


def test_many_at_once_leave_all_nights(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    def ended(number: int) -> None:
        ledger.publish(store, night(number))
        write_index(store)

    threads = [threading.Thread(target=ended, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(_rows((tmp_path / "index.html").read_text())) == 4


def test_poses_are_told_in_their_own_measure() -> None:
    found = outcome(0.5, measure="ap", metrics={"ap": Metric(value=0.5, low=0.4, high=0.6)})
    page = index_page("s", [night(0, recipe="coco_pose", outcome=found)])
    assert "AP 0.500" in re.sub(r"<[^>]+>", "", page)


def test_it_needs_no_matplotlib_and_no_pandas() -> None:
    code = (
        "import sys, podline.reporting.nights_page;"
        "print(sorted({'tensorflow', 'matplotlib', 'pandas', 'prefect'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
