"""The report of a finished run: the same figures on the page, in Markdown and in the evaluation."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib.image
import numpy as np
import pytest
from finished_run import CIFAR_NAMES, FINGERPRINT, FOUND, finished_run

from podline.documents.manifest import dataset_folder, read_manifest
from podline.documents.metrics_log import EarlyStopLine
from podline.errors import ArtifactError, StoreError
from podline.kinds.classification.document import Evaluation
from podline.kinds.table import read_evaluation
from podline.progress import silent
from podline.reporting.blocks import markdown_of
from podline.reporting.facts import RunFacts, gather
from podline.reporting.report import report
from podline.reporting.run_sections import findings_table, training
from podline.reporting.sections import blocks_of
from podline.stages.specs import ReportSpec
from podline.stages.table import REPORT
from podline.store.opening import open_store

Rows = list[list[str]]


@dataclass
class Page(HTMLParser):
    """What a reader of the page finds: its text, its tables, where it points to."""

    text: list[str] = field(default_factory=list)
    tables: list[Rows] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    in_cell: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.in_cell = False

    def handle_data(self, data: str) -> None:
        data = data.replace("\N{NO-BREAK SPACE}", " ")
        self.text.append(data)
        if self.in_cell:
            self.tables[-1][-1][-1] += data

    def rows(self, header: str) -> Rows:
        """The rows of the one table whose first row starts so."""
        return _rows(self.tables, header)


def _rows(tables: list[Rows], header: str) -> Rows:
    [found] = [table for table in tables if table[0][: len(header.split("|"))] == header.split("|")]
    return found[1:]


def _markdown_tables(text: str) -> list[Rows]:
    tables: list[Rows] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if not set(line) <= set("|:- "):
                tables[-1].append([cell.strip(" |") for cell in cells])
        elif tables[-1]:
            tables.append([])
    return [table for table in tables if table]


@dataclass
class Reported:
    """A report and what it is about."""

    spec: ReportSpec
    html: str
    markdown: str
    evaluation: Evaluation

    @property
    def page(self) -> Page:
        page = Page()
        page.feed(self.html)
        return page

    @property
    def facts(self) -> RunFacts:
        return gather(open_store(self.spec.root), self.spec, silent())

    @property
    def markdown_tables(self) -> list[Rows]:
        return _markdown_tables(self.markdown)


def _reported(spec: ReportSpec) -> Reported:
    result = report(spec, silent())
    store = open_store(spec.root)
    return Reported(
        spec,
        store.local(result.html).read_text(),
        store.local(result.markdown).read_text(),
        read_evaluation(store, spec.folder),
    )


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return _reported(finished_run(tmp_path_factory.mktemp("store")))


def _within(text: str) -> list[float]:
    """The numbers of ``82.3 % [79.9, 84.5]``."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


@pytest.mark.parametrize("where", ["page", "markdown"])
def test_every_metric_is_the_evaluations(reported: Reported, where: str) -> None:
    evaluation = reported.evaluation
    tables = reported.page.tables if where == "page" else reported.markdown_tables
    rows = {row[0]: row[1:] for row in _rows(tables, "|trained, test split")}
    names = {"accuracy": "top1", "top-5 accuracy": "top5", "loss": "loss", "calibration error": "calibration_error"}
    for words, name in names.items():
        for cell, scored in zip(rows[words], (evaluation.trained, evaluation.untrained, evaluation.seen), strict=True):
            metric = scored.metrics[name]
            scale, step = (1, 0.001) if name == "loss" else (100, 0.1)
            known = [metric.value] if metric.low == metric.high else [metric.value, metric.low, metric.high]
            # Half a unit of the last digit shown, and a little for the decimal point's own rounding.
            assert _within(cell) == pytest.approx([scale * number for number in known], abs=step / 2 + 1e-9)
    sides = (evaluation.trained, evaluation.untrained, evaluation.seen)
    assert rows["right"] == [str(scored.correct) for scored in sides]
    assert rows["examples"] == [str(scored.examples) for scored in sides]


@pytest.mark.parametrize("where", ["page", "markdown"])
def test_every_class_and_every_cell_of_the_matrix_is_the_evaluations(reported: Reported, where: str) -> None:
    evaluation = reported.evaluation
    tables = reported.page.tables if where == "page" else reported.markdown_tables
    for row, scored in zip(_rows(tables, "class|label"), evaluation.per_class, strict=True):
        assert row[0] == scored.name
        assert [int(cell) for cell in row[2:5]] == [scored.examples, scored.correct, scored.predicted]
        metric = scored.accuracy
        assert _within(row[5] + row[6]) == pytest.approx(
            [100 * number for number in (metric.value, metric.low, metric.high)], abs=0.05 + 1e-9
        )
    matrix = _rows(tables, "label|airplane")
    assert [row[0] for row in matrix] == list(CIFAR_NAMES)
    assert tuple(tuple(int(cell) for cell in row[1:]) for row in matrix) == evaluation.confusion


@pytest.mark.parametrize("where", ["page", "markdown"])
def test_calibration_bins_and_data_facts_are_there(reported: Reported, where: str) -> None:
    tables = reported.page.tables if where == "page" else reported.markdown_tables
    filled = [entry for entry in reported.evaluation.calibration if entry.examples]
    assert [int(row[1].replace(",", "")) for row in _rows(tables, "confidence in")] == [b.examples for b in filled]
    store = open_store(reported.spec.root)
    manifest = read_manifest(store, dataset_folder("cifar10", FINGERPRINT))
    splits = {row[0]: row[1:] for row in _rows(tables, "split|train|test")}
    assert splits["records"] == ["60", "60"]
    assert _within(splits["mean of the pixels"][0]) == pytest.approx(manifest.splits[0].mean, abs=0.005 + 1e-9)
    counts = [[int(cell) for cell in row[1:]] for row in _rows(tables, "class|train|test")]
    assert counts == [list(pair) for pair in zip(*(split.class_counts for split in manifest.splits), strict=True)]
    assert _rows(tables, "split|reason") == [
        ["train", "label 12 vs 10 classes", "2", "data_batch_1[0], data_batch_1[1]"]
    ]
    assert [row[2] for row in _rows(tables, "file|bytes")] == [file.sha256 for file in manifest.source]


def test_the_mistakes_are_shown_with_their_own_pixels(reported: Reported) -> None:
    evaluation = reported.evaluation
    store = open_store(reported.spec.root)
    manifest = read_manifest(store, reported.spec.dataset_folder)
    shard = store.local(f"{reported.spec.dataset_folder}/{manifest.split('test').shards[0].file}").read_bytes()
    frames = np.frombuffer(shard, np.uint8).reshape(60, -1)
    offset = 12 + manifest.field("image").offset
    images = [attributes for tag, attributes in reported.page.tags if tag == "img"]
    assert len(images) == len(evaluation.mistakes) > 0
    for attributes, mistake in zip(images, evaluation.mistakes, strict=True):
        header, _, data = str(attributes["src"]).partition(",")
        assert header == "data:image/png;base64"
        shown = matplotlib.image.imread(io.BytesIO(base64.b64decode(data)), format="png")
        pixels = np.rint(255 * shown[..., :3]).astype(np.uint8)
        assert np.array_equal(pixels.reshape(-1), frames[mistake.record, offset : offset + 3072])
        assert f"labelled {CIFAR_NAMES[mistake.label]}" in str(attributes["alt"])
        assert f"taken for {CIFAR_NAMES[mistake.prediction]}" in str(attributes["alt"])


def test_the_page_needs_nothing_but_itself(reported: Reported) -> None:
    assert len(reported.html) < 5_000_000
    places = [attributes.get(name) for _, attributes in reported.page.tags for name in ("src", "href")]
    # It leads to the page over all nights, and needs it for nothing.
    assert places.count("../../index.html") == 1
    assert all(place.startswith(("data:", "#")) for place in places if place and place != "../../index.html")
    assert not re.search(r"@import|@font-face|url\((?!#)|<script|<link", reported.html)


def test_charts_take_their_colours_from_the_page_and_say_what_they_show(reported: Reported) -> None:
    charts = [attributes for tag, attributes in reported.page.tags if tag == "svg"]
    assert len(charts) == 10
    assert all(str(chart["aria-label"]).endswith(".") for chart in charts)
    body = reported.html[reported.html.index("<body>") :]
    assert not re.search(r"(?:fill|stroke): #", body)


def test_every_chart_is_a_picture_of_its_own_in_markdown(reported: Reported) -> None:
    text = open_store(reported.spec.root).read_bytes(REPORT.find(reported.spec, silent()).charts).decode()
    pictures = re.findall(r"!\[(.*)\]\(data:image/svg\+xml;base64,(.*)\)", text)
    assert len(pictures) == reported.html.count('class="chart"') == 10
    assert pictures[0][0].startswith("Accuracy with 95 % intervals. guessing: ")
    assert "\n**Loss over training steps**\n" in text
    for _, data in pictures:
        chart = base64.b64decode(data).decode()
        root = ET.fromstring(chart)  # noqa: S314 (our own)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in chart
        references = set(re.findall(r"(?:href=\"|url\()#([^\")]+)", chart))
        assert references <= {element.get("id") for element in root.iter()}


def test_findings_and_damaged_checkpoints_are_told_with_what_to_do(reported: Reported) -> None:
    table = findings_table(FOUND, reported.facts.events)
    assert table.rows == [
        ["dead outputs", "stage2_relu", "100", "340", "something is wrong with stage2_relu", "look at it"],
        ["dead outputs", "stage2_relu", "1,200", "the end", "something is wrong with stage2_relu", "look at it"],
        ["waiting for input", "input", "200", "the end", "something is wrong with input", "look at it"],
        [
            *("checkpoint damaged", "checkpoints", "700", "700"),
            *("checkpoint 700: weights.npz is short", "check the disk"),
        ],
    ]
    assert table.markdown() in reported.markdown
    assert "something is wrong with stage2_relu" in " ".join(reported.page.text)


def test_an_early_end_is_told_with_every_decision(reported: Reported) -> None:
    decision = {"value": 0.3, "best": 0.2, "state": 10, "time": 0.0}
    decisions = (
        EarlyStopLine(step=20, stalled=1, stopped=False, restored=False, **decision),
        EarlyStopLine(step=30, stalled=2, stopped=True, restored=True, **decision),
    )
    facts = reported.facts
    ended = facts.training.changed(ending="ended early at step 30 of 90: it got no better")
    text = markdown_of(blocks_of(training, replace(facts, decisions=decisions, training=ended)))
    assert "The training ended early at step 30 of 90: it got no better." in text
    rows = _rows(_markdown_tables(text), "step|what")[-2:]
    assert [row[1:3] for row in rows] == [["end", "0.3000"]] * 2
    assert [row[-1] for row in rows] == ["goes on", "the run ends early, back to the state of step 10"]
    restored = facts.training.changed(ending="the model is that of step 10")
    assert "The model is that of step 10." in markdown_of(blocks_of(training, replace(facts, training=restored)))


def test_stages_events_versions_and_command_are_told(reported: Reported) -> None:
    text = " ".join(" ".join(reported.page.text).split())
    for shared in (
        "9 min 48 s",
        "went on from the checkpoint of step 500",
        "checkpoint_damaged",
        "1.2 % of the time went by waiting for input.",
        "0.515 PFLOP; ",
        "podline run cifar10 --source ../data/cifar10 --root podline-root",
        "images: better than guessing, the first run with these settings.",
        "numpy 2.3.45",
        "commit c0ffeec0ffee, clean",
    ):
        assert shared in text
        assert shared.replace("numpy ", "") in reported.markdown


def test_the_stage_is_found_again_until_its_page_is_damaged(reported: Reported) -> None:
    found = REPORT.find(reported.spec, silent())
    assert found is not None
    assert found.reused
    page = open_store(reported.spec.root).local(found.html)
    whole = page.read_bytes()
    page.write_bytes(whole[:-1])
    assert REPORT.find(reported.spec, silent()) is None
    page.write_bytes(whole)


def test_another_evaluation_than_the_one_asked_for_is_refused(tmp_path: Path) -> None:
    spec = finished_run(tmp_path, records=20)
    with pytest.raises(ArtifactError, match=r"evaluation\.json has sha256 .* vs 000000000000… in the report's spec"):
        report(spec.model_copy(update={"evaluation_sha256": "0" * 64}), silent())
    assert not (tmp_path / spec.folder / "report.html").exists()


def test_a_run_without_metrics_leaves_no_report(tmp_path: Path) -> None:
    spec = finished_run(tmp_path, records=20)
    (tmp_path / spec.folder / "metrics.jsonl").unlink()
    with pytest.raises(StoreError, match=r"metrics\.jsonl"):
        report(spec, silent())
    assert not (tmp_path / spec.folder / "report.html").exists()


def test_many_classes_with_hostile_names(tmp_path: Path) -> None:
    names = ("<script>alert(1)</script>", "$a$|b", *(f"class {number}" for number in range(2, 30)))
    reported = _reported(finished_run(tmp_path, class_names=names, records=90, accuracy=0.7))
    assert "<script" not in reported.html
    assert "<script" not in reported.markdown
    assert "| &lt;script>alert(1)&lt;/script> |" in reported.markdown
    assert [row[0] for row in reported.page.rows("class|train")] == list(names)
    assert r"$a$\|b" in reported.markdown
    assert "matrix as a table" not in reported.html
    assert len(reported.page.rows("label|taken for")) == 10


def test_a_perfect_model_has_no_mistakes_to_show(tmp_path: Path) -> None:
    reported = _reported(finished_run(tmp_path, records=40, perfect=True, quarantined=0))
    assert "No record was left out." in reported.markdown
    assert reported.html.count("every example is labelled correctly") == 2
    assert "No confusion at all" in reported.html


def test_a_result_that_is_guessing_says_so(tmp_path: Path) -> None:
    reported = _reported(finished_run(tmp_path, accuracy=0.0))
    assert "cannot be told from guessing" in reported.html
    assert 'class="warning"' in reported.html
    assert "cannot be told from guessing" in reported.markdown
    assert "most frequent class of the test split" in reported.markdown
