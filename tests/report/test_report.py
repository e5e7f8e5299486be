"""The report of a finished run: the figures of its evaluation in every form, and sections of installed packages."""

from __future__ import annotations

import base64
import html
import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import cv2
import matplotlib.image
import numpy as np
import pytest
from finished_run import CIFAR_NAMES, FINGERPRINT, FOUND, finished_run
from markupsafe import Markup, escape
from metrics import evaluation_line, steps_line
from support.extending import code_of, install

from podline.base.drawing.svg import Svg
from podline.base.errors import ArtifactError, StoreError
from podline.base.progress import silent
from podline.documents.manifest import dataset_folder, read_manifest
from podline.documents.metric import Metric
from podline.kinds.classification.document import Evaluation
from podline.recipes.kind_table import read_evaluation
from podline.report import charts, run_sections, verdict
from podline.report.blocks import Chart, Code, Column, Fold, Grid, Heading, Items, Picture, Pictures, Table, Text
from podline.report.facts import RunFacts, gather
from podline.report.pictures import PHOTO, SMALL_PHOTO, photo_uri
from podline.report.report import report
from podline.report.run_sections import findings_table
from podline.stages.specs import ReportSpec
from podline.store.opening import open_store

Rows = list[list[str]]


def _within(text: str) -> list[float]:
    """The numbers of ``82.3 % [79.9, 84.5]``."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def _html_tables(page: str) -> list[Rows]:
    """The tables of a page, without tags."""
    found = []
    for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
        rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
        found.append([[_text(cell) for cell in re.findall(r"<t[dh]\b.*?</t[dh]>", row, re.DOTALL)] for row in rows])
    return found


def _text(part: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", part)).replace("\N{NO-BREAK SPACE}", " ")


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


def _rows(tables: list[Rows], header: str) -> Rows:
    """The rows of the one table whose first row starts so."""
    [found] = [table for table in tables if table[0][: len(header.split("|"))] == header.split("|")]
    return found[1:]


class Reported(NamedTuple):
    """A report and what it is about."""

    spec: ReportSpec
    html: str
    markdown: str
    evaluation: Evaluation

    @property
    def facts(self) -> RunFacts:
        return gather(open_store(self.spec.root), self.spec, silent())

    def tables(self, where: str) -> list[Rows]:
        return _html_tables(self.html) if where == "page" else _markdown_tables(self.markdown)


def _reported(spec: ReportSpec) -> Reported:
    result, store = report(spec, silent()), open_store(spec.root)
    page, text = (store.read_bytes(name).decode() for name in (result.html, result.markdown))
    return Reported(spec, page, text, read_evaluation(store, spec.folder))


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return _reported(finished_run(tmp_path_factory.mktemp("store")))


@pytest.mark.parametrize("where", ["page", "markdown"])
def test_a_report_has_every_metric_class_and_cell_of_the_matrix_of_the_evaluation(
    reported: Reported, where: str
) -> None:
    evaluation = reported.evaluation
    tables = reported.tables(where)
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

    best_first = sorted(evaluation.per_class, key=lambda scored: scored.accuracy.value)[::-1]  # as in the chart
    for row, scored in zip(_rows(tables, "class|label"), best_first, strict=True):
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
def test_a_report_has_the_calibration_and_the_facts_of_the_data(reported: Reported, where: str) -> None:
    tables = reported.tables(where)
    filled = [entry for entry in reported.evaluation.calibration if entry.examples]
    assert [int(row[1].replace(",", "")) for row in _rows(tables, "confidence in")] == [b.examples for b in filled]
    store = open_store(reported.spec.root)
    manifest = read_manifest(store, dataset_folder("cifar10", FINGERPRINT))
    splits = {row[0]: row[1:] for row in _rows(tables, "split|train|test")}
    assert splits["records"] == ["60", "60"]
    counts = [[int(cell) for cell in row[1:]] for row in _rows(tables, "class|train|test")]
    assert counts == [list(pair) for pair in zip(*(split.class_counts for split in manifest.splits), strict=True)]
    assert _rows(tables, "split|reason") == [
        ["train", "label 12 vs 10 classes", "2", "data_batch_1[0], data_batch_1[1]"]
    ]


def test_the_mistakes_are_shown_with_their_own_pixels(reported: Reported) -> None:
    evaluation = reported.evaluation
    store = open_store(reported.spec.root)
    manifest = read_manifest(store, reported.spec.dataset_folder)
    shard = store.local(f"{reported.spec.dataset_folder}/{manifest.split('test').shards[0].file}").read_bytes()
    frames = np.frombuffer(shard, np.uint8).reshape(60, -1)
    offset = 12 + manifest.field("image").offset
    images = re.findall(r'<img src="data:image/png;base64,(.*?)" alt="(.*?)"', reported.html)
    assert len(images) == len(evaluation.mistakes) > 0
    for (data, words), mistake in zip(images, evaluation.mistakes, strict=True):
        shown = matplotlib.image.imread(io.BytesIO(base64.b64decode(data)), format="png")
        pixels = np.rint(255 * shown[..., :3]).astype(np.uint8)
        assert np.array_equal(pixels.reshape(-1), frames[mistake.record, offset : offset + 3072])
        assert f"labelled {CIFAR_NAMES[mistake.label]}" in words
        assert f"predicted as {CIFAR_NAMES[mistake.prediction]}" in words


def test_the_page_needs_nothing_but_itself(reported: Reported) -> None:
    # It leads to the page over all nights, and needs it for nothing.
    assert re.findall(r"(?:src|href)=\"(?!data:|#)([^\"]*)", reported.html) == ["../../index.html"]
    assert not re.search(r"@import|@font-face|url\((?!#)|<script|<link", reported.html)
    body = reported.html[reported.html.index("<body>") :]
    assert not re.search(r"(?:fill|stroke): #", body), "charts take their colours from the page"


def test_findings_and_damaged_checkpoints_are_told_with_what_to_do(reported: Reported) -> None:
    table = findings_table(FOUND, reported.facts.events)
    assert [row[:4] for row in table.rows] == [
        ["dead outputs", "stage2_relu", "100", "340"],
        ["dead outputs", "stage2_relu", "1,200", "the end"],
        ["waiting for input", "input", "200", "the end"],
        ["checkpoint damaged", "checkpoints", "700", "700"],
    ]
    assert table.rows[-1][4:] == ["checkpoint 700: weights.npz is short", "check the disk"]
    assert table.markdown() in reported.markdown


def test_stages_events_versions_and_command_are_told(reported: Reported) -> None:
    for shared in (
        "9 min 48 s",
        "went on from the checkpoint of step 500",
        "1.2 % of the time went by waiting for input.",
        "podline run cifar10 --source ../data/cifar10 --root podline-root",
        "2.3.45",
        "commit c0ffeec0ffee, clean",
    ):
        assert shared in " ".join(_text(reported.html).split())
        assert shared in reported.markdown
    assert "ms an image: 3.1" in re.sub(r"(<[^>]+>)+", ": ", reported.html)


def test_another_evaluation_than_the_one_asked_for_and_missing_metrics_leave_no_report(tmp_path: Path) -> None:
    spec = finished_run(tmp_path, records=20)
    with pytest.raises(ArtifactError, match=r"evaluation\.json has sha256 .* vs 000000000000… in the stage's spec"):
        report(spec.model_copy(update={"evaluation_sha256": "0" * 64}), silent())
    (tmp_path / spec.folder / "metrics.jsonl").unlink()
    with pytest.raises(StoreError, match=r"metrics\.jsonl"):
        report(spec, silent())
    assert not (tmp_path / spec.folder / "report.html").exists()


@pytest.mark.usefixtures("no_charts")
def test_many_classes_with_hostile_names_are_text_and_a_small_split_and_guessing_are_named(tmp_path: Path) -> None:
    names = ("<script>alert(1)</script>", "$a$|b", *(f"class {number}" for number in range(2, 30)))
    reported = _reported(finished_run(tmp_path, class_names=names, records=90, accuracy=0.7))
    for text in (reported.html, reported.markdown):
        assert "<script" not in text
    assert r"$a$\|b" in reported.markdown
    assert [row[0] for row in _rows(reported.tables("page"), "class|train")] == list(names)
    assert len(_rows(reported.tables("page"), "label|predicted as")) == 10
    few = _reported(finished_run(tmp_path / "few", class_names=("cat", "dog"), records=20, accuracy=0.0))
    first = few.html.split("Look at this")[1][:300]
    assert "Only 20 test examples: the figure may be anything from " in first
    assert 'class="warning"' in few.html
    assert "is not better than guessing" in few.html
    assert "is not better than guessing" in few.markdown


def test_what_needs_a_look_and_what_is_next_come_first(reported: Reported) -> None:
    page = reported.html
    top, *sections = page.split("<section id=")
    assert "<strong>Look at this first</strong>" in top
    assert "2 records of the source left out" in top
    assert "the figure may be anything" not in top
    assert "The worst mistake is record " in top
    assert "<h2>What next</h2>" in sections[0]
    assert f"podline models predict {reported.spec.run} photos/" in sections[0]
    assert re.findall(r'<a href="#(section-\d+)">', top) == re.findall(r'<section id="(.*?)">', page)


HOSTILE = "<script>alert(1)</script> **bold** | `code`"


def test_the_page_of_docs_adds_a_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, toml = (code_of("## A section of the report", language) for language in ("python", "toml"))
    monkeypatch.syspath_prepend(install(tmp_path / "site", {"my_sections": code}, toml))
    spec = finished_run(tmp_path / "root")
    found, store = report(spec, silent()), open_store(spec.root)
    page, markdown = (store.read_bytes(name).decode() for name in (found.html, found.markdown))
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings.index("The most confident mistakes") < headings.index("Imbalance") < headings.index("Model")
    assert 'aria-label="Accuracy over training records of 10 classes."' in page
    assert re.search(r"<tr><th scope=\"row\">cat</th><td>\d+</td><td>[\d.]+.% <span class=\"interval\">", page)
    assert "## Imbalance\n\n" in markdown
    assert "### The classes, the rarest first\n\n| class | records | accuracy |" in markdown


@pytest.mark.usefixtures("no_charts")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("broken = 3", "section broken (broken_sections:broken of broken_sections): got int"),
        (
            "from podline.report.sections import section\n\n\n@section('Broken')\ndef broken(run):\n    yield 1 / 0",
            "section Broken (broken_sections): ZeroDivisionError: division by zero",
        ),
        (
            (
                "from podline.report.sections import section\n\n\n"
                "@section('Broken')\ndef broken(run):\n    yield run.store.read_bytes('nothing')"
            ),
            "section Broken (broken_sections): cannot read ",
        ),
    ],
)
def test_a_section_that_fails_is_named_on_the_page(tmp_path: Path, monkeypatch, code: str, message: str) -> None:
    toml = '[project.entry-points."podline.sections"]\nbroken = "broken_sections:broken"\n'
    monkeypatch.syspath_prepend(install(tmp_path / "site", {"broken_sections": code}, toml))
    monkeypatch.delitem(sys.modules, "broken_sections", raising=False)
    spec = finished_run(tmp_path / "root", records=20)
    page = open_store(spec.root).read_bytes(report(spec, silent()).html).decode()
    assert f'<p class="warning">{message}' in page
    assert "<h2>Training</h2>" in page


@pytest.mark.parametrize(
    "block",
    [
        Text(HOSTILE, "note"),
        Heading(HOSTILE),
        Items([HOSTILE]),
        Code(HOSTILE),
        Table.of([{HOSTILE: HOSTILE}]),
        Pictures([Picture([("data:,", HOSTILE)], HOSTILE, [HOSTILE])]),
        Fold(HOSTILE, Grid(Column(Text(HOSTILE)))),
    ],
    ids=lambda block: type(block).__name__,
)
def test_a_block_shows_any_text_as_it_is(block: Text) -> None:
    assert "<script" not in (page := escape(block))
    assert "&lt;script&gt;" in page
    markdown = block.markdown()
    assert isinstance(block, Code) or ("<script" not in markdown and "**" not in markdown.replace(r"\*\*", ""))
    assert Fold("Curves", Chart(Svg("", 1, 1, Markup()), "Loss")).markdown() == "", "nothing has no heading"


def test_a_previous_version_that_cannot_be_compared_is_named(reported: Reported, monkeypatch) -> None:
    facts = reported.facts
    before = facts.manifest.model_copy(update={"records": None})
    monkeypatch.setattr(run_sections, "version_before", lambda *_: before)
    [warning] = run_sections.changes.blocks(facts)
    assert isinstance(warning, Text)
    assert warning.text.startswith("Not compared with the previous version: ")
    assert "converted by an older Podline" in warning.text


@pytest.mark.parametrize(("kind", "offered"), [("classification", True), ("labels", False)])
def test_a_search_of_suspects_is_offered_for_classes_alone(reported: Reported, kind: str, offered: bool) -> None:
    facts: Any = reported.facts
    own = facts.manifest.model_copy(update={"dataset": "images.own"})
    commands, _ = verdict.what_next.blocks(replace(facts, manifest=own, recipe=SimpleNamespace(name="r", kind=kind)))
    assert ("podline data suspects r" in commands.markdown()) is offered


def test_figures_below_zero_are_inside_their_chart() -> None:
    def side(value: float) -> Any:
        return SimpleNamespace(metrics={"fit": Metric(value=value, low=value - 0.1, high=value + 0.1)})

    sides: Any = {"untrained": side(-1.5), "trained": side(0.5), "seen": side(0.6)}
    found: Any = SimpleNamespace(measure="fit", guessing=Metric(value=0.0, low=0.0, high=0.0), **sides)
    assert "\N{MINUS SIGN}1.5" in charts.verdict(found).html()
    lines = [steps_line(1, -4.0), steps_line(2, -5.0)]
    assert "\N{MINUS SIGN}4" in charts.curve("Loss", "loss", lines, [evaluation_line(2, 1.0)]).html()


def test_photographs_are_as_small_as_they_must_be_and_keep_their_shape() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 800, 3), np.uint8)
    plain = np.full((560, 420, 3), 90, np.uint8)
    for image, least, most in ((noise, 0.3, PHOTO), (noise, 0.3, SMALL_PHOTO), (plain, 0.0, PHOTO)):
        uri = photo_uri(image, most)
        assert uri.startswith("data:image/jpeg;base64,")
        file = base64.b64decode(uri.partition(",")[2])
        assert least * most < len(file) <= most
        height, width, _ = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR).shape
        assert width / height == pytest.approx(image.shape[1] / image.shape[0], rel=0.02)
