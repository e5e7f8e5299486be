"""docs/how-to/section.md's section, in a package that is really installed."""

from __future__ import annotations

import base64
import re
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from finished_run import finished_run
from support.extending import code_of, install

from podline.base.progress import silent
from podline.report.blocks import Chart, Code, Column, Fold, Grid, Heading, Items, Picture, Pictures, Table, Text
from podline.report.pictures import PHOTO, SMALL_PHOTO, photo_uri
from podline.report.report import report
from podline.store.opening import open_store

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
    assert "<script" not in block.html()
    assert "&lt;script&gt;" in block.html()
    markdown = block.markdown()
    assert isinstance(block, Code) or ("<script" not in markdown and "**" not in markdown.replace(r"\*\*", ""))
    assert Fold("Curves", Chart(Text("").html(), "Loss")).markdown() == "", "nothing has no heading"


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
