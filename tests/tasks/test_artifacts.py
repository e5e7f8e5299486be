"""What Prefect's UI shows of a report and of a promotion."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import markdown_it
import pytest

from podline.reporting.escaping import markdown
from podline.stages.specs import PromoteResult, ReportResult, TrainResult
from podline.store.opening import open_store
from podline.store.page_links import PageLinks
from podline.tasks.artifacts import outcome, report_text

MARKDOWN = "# 80 %\n\nof them.\n\n## Figures\n\n| a |\n\n## Data\n"
TRAINED = TrainResult.model_construct(folder="runs/it")
REPORTED = ReportResult(html="runs/it/report.html", markdown="runs/it/report.md", charts="runs/it/report-charts.md")


def text_of(root: Path, store: Any = None) -> str:
    folder = open_store(root)
    folder.publish_bytes(REPORTED.charts, b"![Loss](data:,)\n", replace=True)
    folder.publish_bytes(REPORTED.markdown, MARKDOWN.encode(), replace=True)
    store = store or folder
    return report_text(store, TRAINED, REPORTED, PageLinks(store))


def test_charts_come_after_what_counts_most_and_before_the_figures(tmp_path: Path) -> None:
    text = text_of(tmp_path)
    assert text.index("## Charts\n\n![Loss](data:,)\n") < text.index("## Figures")
    headings = re.findall(r"^#.*", text, re.MULTILINE)
    assert headings == ["# 80 %", "## Charts", "## Figures", "## Data"]
    assert f"`{tmp_path}/runs/it/report.html`" in text
    assert f"`tensorboard --logdir {tmp_path}/runs/it/tensorboard`" in text


@pytest.mark.parametrize(
    "name",
    ["HTTPS://evil.example/x", "www.evil.example", "me@evil.example"],
)
def test_the_address_that_a_class_is_called_is_no_link(name: str) -> None:
    """Bare addresses become links in GitHub's Markdown, which Prefect's UI reads: the escaped text matches none."""
    escaped = markdown(f"the class {name}, \u202eabc")
    assert not re.search(r"(?i)(https?|ftp)://|\bwww\.|[\w.+-]@", escaped)
    assert markdown_it.MarkdownIt().renderInline(escaped) == f"the class {name}, \\u202eabc"


def test_what_lies_in_a_bucket_is_a_link(tmp_path: Path) -> None:
    class Bucket:
        def __getattr__(self, name: str) -> Any:
            return getattr(open_store(tmp_path), name)

        def where(self, name: str) -> str:
            return f"gs://bucket/a store/{name}"

    link = "(https://storage.cloud.google.com/bucket/a%20store/runs/it/report.html)"
    assert f"[gs://bucket/a store/runs/it/report.html]{link}" in text_of(tmp_path, Bucket())


def refused(*refusals: str) -> PromoteResult:
    return PromoteResult(
        run="sample-2",
        recipe="sample",
        promoted=not refusals,
        against="sample-1",
        measure="top1",
        refusals=refusals,
        headline="sample-2 is refused as champion of sample; sample-1 stays",
        promotion_sha256="0" * 64,
    )


def test_the_outcome_is_a_line_that_can_be_read() -> None:
    assert outcome(None) == "not asked for"
    one = refused("accuracy: 29.3 % vs 99.2 %")
    assert outcome(one) == f"{one.headline}; accuracy: 29.3 % vs 99.2 %"
    many = refused("accuracy: 29.3 % vs 99.2 %", "class disc: 35.0 % vs 97.0 %", "class ring: 37.0 % vs 98.0 %")
    assert outcome(many) == f"{many.headline}; accuracy: 29.3 % vs 99.2 %; 2 more in the report"
