"""The index of nights: every night of the ledger, in a folder and in a bucket, written by two at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ledger_entries import night, outcome

from podline.base.errors import ArtifactError
from podline.cli import cli
from podline.documents.champions import Candidate, crown
from podline.documents.ledger_entry import Entry, PromotionSummary, WaitingTime
from podline.documents.metric import Metric
from podline.ledger import ledger
from podline.report import nights_page
from podline.report.night_series import NightSeries
from podline.report.nights_page import MOST_ROWS, index_page, write_index
from podline.store.contract import Store
from podline.store.opening import open_store


def _nights(count: int, **changes):
    """Nights with models that differ, the oldest first."""
    for number in range(count):
        model = outcome(0.7 + number / 100, weights_sha256=f"{number:064x}")
        yield night(number, outcome=model, report=f"runs/cifar10-{number:012x}/report.html", **changes)


def _rows(page: str) -> list[str]:
    listed = page[page.index("<h2>Every night") :] if "<h2>Every night" in page else page
    return re.findall(r"<tr role=\"row\" data-is=\"[^\"]*\"><th role=\"rowheader\".*?</tr>", listed)


def _changes(entries: list[Entry]) -> list[list[str]]:
    """What each row of nights, and of other runs, says of the change, the oldest first: its colour, its words."""
    nights, _, others = index_page("s", entries).partition("<h2>Other runs</h2>")
    both = []
    for rows in (_rows(nights), _rows(others)):
        told = [re.search(r'<span class="change (\w*)">(.*?)</span></td>', row) for row in reversed(rows)]
        both.append([f"{found[1]} {re.sub('<[^>]+>', '', found[2])}".strip() if found else "" for found in told])
    return both


def test_a_night_is_a_row_the_newest_first_with_its_figures() -> None:
    entries = [*_nights(3), night(3, state="failed", run="")]
    page = index_page("the store", entries)
    rows = _rows(page)
    assert len(rows) == 4
    assert "step 7: the loss is nan" in rows[0]
    assert 'href="runs/cifar10-000000000002/report.html"' in rows[1]
    assert "72.0\N{NO-BREAK SPACE}%" in rows[1]
    assert "+1.5 points, mean of 2" in rows[1]
    assert "points" not in rows[3]
    assert "on 24 November 2026, 12:00 UTC, failed: step 7: the loss is nan" in page
    assert "12:00 UTC, finished.</h1>" in index_page("s", [night(0, outcome=None)])


def _sample(number: int, accuracy: float, model: int, **changes: Any) -> Entry:
    """A run of the sample's recipe, on data of its own; ``model`` tells models apart, and runs."""
    data = night().data
    assert data
    half = 1.96 * (accuracy * (1 - accuracy) / 1000) ** 0.5
    top1 = Metric(value=accuracy, low=accuracy - half, high=accuracy + half)
    values = {
        "outcome": outcome(accuracy, examples=1000, weights_sha256=f"{model:064x}", metrics={"top1": top1}),
        "run": f"sample-{model:012x}",
        "data": data.model_copy(update={"fingerprint": f"{number:016x}"}),
    }
    return night(number, recipe="sample", **(values | changes))


def test_known_trainings_show_the_spread_between_seeds_and_refused_ones_do_not() -> None:
    """Seeds that scatter by five points explain what the assumed spread does not."""
    same = {"data": night().data}
    scattered = enumerate((0.80, 0.85, 0.90, 0.88))
    seeds = [_sample(number, accuracy, number, **same, **BY_HAND) for number, accuracy in scattered]
    refused = [each.model_copy(update={"promotion": PromotionSummary(verdict="refused")}) for each in seeds]
    last = [_sample(4, 0.85, 4, **same), _sample(5, 0.78, 5)]
    for before, said in ((seeds, "noise ▼ −7.6 points, mean of 5"), (refused, "worse ▼ −7.0 points")):
        assert _changes([*before, *last])[0] == ["", said]


def _with(entry: Entry, **recipe: Any) -> Entry:
    """The same with other values of the recipe."""
    return entry.model_copy(update={"settings": {**entry.settings, "recipe": {**entry.settings["recipe"], **recipe}}})


BY_HAND: dict[str, Any] = {"started": "hand", "schedule": ""}
REUSED = {stage: took.model_copy(update={"reused": True}) for stage, took in night().stages.items()}
BEFORE, FAILED, ORPHAN = _sample(0, 0.95, 1), night(1, recipe="sample", state="failed"), _sample(1, 0.80, 2)
WORSE = "worse ▼ −15.0 points"


@pytest.mark.parametrize(
    ("entries", "nights", "others"),
    [
        (
            [
                BEFORE,
                _with(_sample(1, 0.999, 2, **BY_HAND), schedule={"learning_rate": 0.5}),
                _sample(1, 0.80, 2, **BY_HAND),
                _sample(2, 0.95, 1, stages=REUSED),
                _sample(3, 0.80, 2),
            ],
            ["", "the same model", WORSE],
            ["", ""],
        ),
        (
            [
                BEFORE,
                _with(_sample(1, 0.60, 2), schedule={"learning_rate": 0.5}),
                _with(_sample(2, 0.94, 3), seed=77),
                _sample(3, 0.70, 4, schedule="another"),
                _with(_sample(4, 0.94, 5), promotion={"rate": 0.01}),
                _with(_sample(5, 0.40, 6), schedule={"learning_rate": 0.5}),
                _sample(6, 0.95, 1),
                _sample(7, 0.80, 7),
            ],
            [
                "",
                "other settings",
                "noise ▼ −1.0 points",
                "",
                "noise +0.0 points",
                "worse ▼ −20.0 points",
                "the model of 21 Nov 2026",
                WORSE,
            ],
            [],
        ),
        (
            [
                BEFORE,
                FAILED,
                _sample(2, 0.80, 2, flow_run=FAILED.flow_run, started="retry", attempt=2),
                _sample(3, 0.80, 3),
            ],
            ["", "", WORSE],
            [WORSE],
        ),
        # A flow whose worker was killed may go on to its end, and be begun again nevertheless.
        ([BEFORE, ORPHAN, _sample(2, 0.80, 2, flow_run=ORPHAN.flow_run, attempt=2)], ["", WORSE], []),
    ],
    ids=["found and by hand", "schedule and settings", "retry", "crashed at its end"],
)
def test_a_run_is_compared_with_the_last_night_of_its_schedule_and_settings(entries, nights, others):
    assert _changes(entries) == [nights, others]


def _ticks(page: str, title: str) -> list[list[str]]:
    charts = re.findall(rf'<svg[^>]+aria-label="{title} over.*?</svg>', page)
    return [re.findall(r'<text x="46"[^>]*>(.*?)</text>', chart) for chart in charts]


def test_charts_of_one_measure_have_one_axis_days_with_years_and_say_what_was_waited_for() -> None:
    first = [_sample(number, 0.90 + number / 1000, number) for number in range(3)]
    second = [night(number, outcome=outcome(0.5, weights_sha256=f"{number + 9:064x}")) for number in range(3)]
    waiting = [WaitingTime(start=1.0), WaitingTime(start=2.0, retries=70.0), WaitingTime()]
    second = [entry.model_copy(update={"waiting": waited}) for entry, waited in zip(second, waiting, strict=True)]
    by_hand = _with(_sample(9, 0.1, 9, **BY_HAND), schedule={"learning_rate": 0.5})
    page = index_page("s", [*first, *second, by_hand]).replace("\N{NO-BREAK SPACE}", " ")
    assert _ticks(page, "Accuracy") == [["40 %", "60 %", "80 %", "100 %"]] * 2
    assert ["0", "30 s", "1 min", "1 min 30 s"] in _ticks(page, "Waiting")
    assert "In all 3.0 s to begin, 1 min 10 s between attempts." in page
    year = index_page("s", [night(), night(365, outcome=outcome(0.9))])
    assert {"21 Nov 2026", "21 Nov 2027"} <= set(re.findall(r"<text[^>]*>(.*?)</text>", year))


def test_what_was_reused_is_told() -> None:
    entries = [night(0), night(1, stages=REUSED), night(2, stages=night().stages | {"convert": REUSED["convert"]})]
    assert re.findall(r'class="reused">(.*?)</td>', index_page("s", entries))[-3:] == ["convert", "all", ""]


def _told(page: str) -> tuple[str, list[str], str]:
    """The headline's figure, the box below it, and the commands to type next."""
    [figure] = re.findall(r"<h1><strong>(.*?)</strong>", page)
    box = page.partition('<div class="standing')[2].partition("</div>")[0]
    commands = page.partition("<h2>What next</h2>")[2].partition("</pre>")[0]
    return figure, re.findall(r"<li>(.*?)</li>", box), commands


def _recipe(name: str, number: int, **changes: Any) -> Entry:
    return night(number, recipe=name, **{"flow_run": f"{name}-{number}", **changes})


def test_what_needs_a_look_comes_first_with_what_it_changes_and_the_next_command() -> None:
    refused = PromotionSummary(verdict="refused", reason="class cat", reference="b-1")
    entries = [
        _recipe("given-up", 0, state="failed"),
        _recipe("mended", 15, state="failed"),
        _recipe("a", 16),
        _recipe("b", 17, promotion=refused),
        _recipe("c", 18, state="failed"),
        _recipe("d", 19),
        _recipe("mended", 20, started="retry", flow_run="mended-15"),
    ]
    page = index_page("s", entries, {"c": "c-before"})
    figure, lines, commands = _told(page)
    assert figure == "1 failed"
    assert [line.split(", ")[0] for line in lines] == ["c", "b"]
    assert lines[0].endswith("failed: step 7: the loss is nan; c-before stays champion")
    assert "podline runs show c-000000000012" in commands
    newest = page.partition("<h2>The newest of each schedule</h2>")[2].partition("</section>")[0]
    assert re.findall(r'class="run">([a-z-]+)-0', newest) == ["c", "b", "mended", "d", "a"]
    assert _told(index_page("s", [*entries[:1], *entries[2:3]]))[0] == "All well"
    before, worse = BEFORE, _sample(1, 0.6, 2)
    figure, [line], commands = _told(index_page("s", [before, worse]))
    assert (figure, "−35.0 points, on other data, more than seeds usually do" in line) == ("1 worse", True)
    assert f"podline runs compare {worse.run} {before.run} --why" in commands
    by_hand = index_page("s", [night(place, **BY_HAND) for place in range(3)])
    assert _told(by_hand)[0] == "3 runs"
    assert "<h2>All runs</h2>" in by_hand


def test_a_night_that_restarted_after_a_later_one_is_the_last_point() -> None:
    first, later, again = night(0, flow_run="a"), night(1), night(2, flow_run="a")
    series = NightSeries(first, others=False)
    for each in (first, later, again):
        series.add(each)
    chart, *_ = series.charts()
    assert [point.time for point in chart.points] == [later.ended, again.ended]


def test_nights_of_a_kind_that_is_not_installed_have_no_change() -> None:
    figure = {"years": Metric(value=3.0, low=2.0, high=4.0)}
    result = outcome(0.5).changed(measure="years", metrics=figure)
    entries = [night(place, outcome=result.changed(weights_sha256=str(place))) for place in range(2)]
    assert _changes(entries)[0][1] == "the kind is not installed"


def test_hostile_names_are_text() -> None:
    page = index_page("<b>store</b>", [night(0, state="failed", cause="<script>alert(1)</script>" * 30), night(1)])
    assert "<script" not in page
    assert "<b>store" not in page


@pytest.mark.slow
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
    crown(store, "cifar10", Candidate("cifar10-000000000000", "0" * 64, "cifar10", "0" * 16), None, "promoted")
    command = ["runs", "nights", "--root", store.uri]
    answer = CliRunner().invoke(cli, [*command, "--json"], catch_exceptions=False)
    assert json.loads(answer.stdout)["html"] == str(tmp_path / "root" / "index.html")
    rows = _rows((tmp_path / "root" / "index.html").read_text())
    assert ["champion" in row for row in rows] == [False, False, True]
    out = tmp_path / "nights.html"
    CliRunner().invoke(cli, [*command, "--out", str(out)], catch_exceptions=False)
    assert f'href="{(tmp_path / "root" / "runs").as_uri()}/cifar10-000000000002/report.html"' in out.read_text()


def test_a_night_that_ends_meanwhile_is_in_the_index_of_whoever_comes_last(tmp_path: Path, monkeypatch) -> None:
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


def test_damaged_entries_and_histories_are_named_and_stop_neither_page_nor_metrics_nor_table(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    _publish(store, 2)
    for name in (ledger.file_of(night(7).name), "models/cifar10/history/000001.json"):
        store.publish_bytes(name, b"torn")
    write_index(store)
    page = store.read_bytes("index.html").decode()
    assert len(_rows(page)) == 2
    assert page.count("Left out: ") == 2
    metrics, table = tmp_path / "metrics.prom", tmp_path / "runs.csv"
    command = ["runs", "nights", "--root", store.uri, "--metrics", str(metrics)]
    assert CliRunner().invoke(cli, command, catch_exceptions=False).exit_code == 0
    assert "podline_night_result" in metrics.read_text()
    with pytest.raises(ArtifactError):
        CliRunner().invoke(cli, ["runs", "list", "--root", store.uri, "--export", str(table)], catch_exceptions=False)
    assert len(table.read_text().splitlines()) == 3


def test_a_decision_has_its_reason_and_a_model_that_is_refused_for_it_is_shown() -> None:
    compared: dict[str, Any] = {"reference": "sample-1", "thresholds": "promoted up to 2.0", "floor": 0.93}
    decisions = {
        0.95: PromotionSummary(verdict="promoted"),
        0.94: PromotionSummary(verdict="promoted", **compared),
        0.90: PromotionSummary(verdict="refused", reason="class <cat>", **compared),
        0.96: PromotionSummary(verdict="undecided", reason="accuracy is open", **compared),
        0.97: None,
    }
    nights = [_sample(place, *each, place, promotion=said) for place, (*each, said) in enumerate(decisions.items())]
    page = index_page("s", nights, {"sample": nights[1].run})
    assert f"Champion {nights[1].run}; reference sample-1; promoted up to 2.0." in page
    rows = _rows(page)[::-1]
    assert [re.findall(r'<span class="verdict">(.*?)</span>', row) for row in rows] == [
        ["promoted"],
        ["promoted"],
        ["refused: class &lt;cat&gt;"],
        ["undecided: accuracy is open"],
        [],
    ]
    below = [re.findall(r'<b class="below">(.*?)</b>', row) for row in rows]
    assert below == [[], [], ["below the line of refusal by 3.0 points"], [], []]
    [chart] = re.findall(r'<svg[^>]+aria-label="Accuracy.*?</svg>', page)
    assert "; 1 refused for this figure." in chart
    assert (chart.count('class="below"'), chart.count('class="promoted"'), chart.count('class="floor"')) == (1, 2, 1)
