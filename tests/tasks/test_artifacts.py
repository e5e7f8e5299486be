"""What Prefect's UI shows of a report and of a promotion."""

from __future__ import annotations

import re
from pathlib import Path

import markdown_it
import pytest

from podline.base.errors import PodlineError
from podline.report.escaping import markdown
from podline.stages.specs import PromoteResult, ReportResult, TrainResult
from podline.store.opening import open_store
from podline.store.page_links import PageLinks
from podline.tasks.artifacts import outcome, report_text
from podline.tasks.stops import remedies

MARKDOWN = "# 80 %\n\nof them.\n\n## Figures\n\n| a |\n\n## Data\n"
TRAINED = TrainResult.model_construct(folder="runs/it")
REPORTED = ReportResult(html="runs/it/report.html", markdown="runs/it/report.md")


def test_the_report_is_its_verdict_and_a_link(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.publish_bytes(REPORTED.markdown, MARKDOWN.encode())
    lines = report_text(store, TRAINED, REPORTED, PageLinks(store), "> As before.").splitlines()
    assert lines[0] == f"Open the report: `{tmp_path}/runs/it/report.html` · all nights: `{tmp_path}/index.html`"
    assert [line for line in lines[1:-1] if line] == ["> As before.", "# 80 %", "of them."]
    assert lines[-1] == f"TensorBoard: `tensorboard --logdir {tmp_path}/runs/it/tensorboard`"


@pytest.mark.parametrize(
    "name",
    ["HTTPS://evil.example/x", "www.evil.example", "me@evil.example"],
)
def test_the_address_that_a_class_is_called_is_no_link(name: str) -> None:
    """Bare addresses become links in GitHub's Markdown, which Prefect's UI reads: the escaped text matches none."""
    escaped = markdown(f"the class {name}, \u202eabc")
    assert not re.search(r"(?i)(https?|ftp)://|\bwww\.|[\w.+-]@", escaped)
    assert markdown_it.MarkdownIt().renderInline(escaped) == f"the class {name}, \\u202eabc"


def test_the_outcome_is_a_line_that_can_be_read() -> None:
    refusals = ("accuracy: 29.3 % vs 99.2 %", "class disc: 35.0 % vs 97.0 %", "class ring: 37.0 % vs 98.0 %")
    result = PromoteResult.model_construct(headline="sample-2 is refused", refusals=refusals, promoted=False, doubt="")
    assert outcome(None) == "not asked for"
    assert outcome(result) == f"sample-2 is refused; {refusals[0]}; 2 more in the report"


def _kinds(error: type[PodlineError]) -> set[type[PodlineError]]:
    return {error}.union(*map(_kinds, error.__subclasses__()))


def test_every_kind_of_failure_has_advice_in_the_table_of_failed_runs() -> None:
    ours = {kind for kind in _kinds(PodlineError) if kind.__module__.startswith("podline.")}
    assert {kind.heading for kind in ours} <= set(remedies())
    assert remedies()["Training diverged"] == "see `docs/reference/findings.md`"
    assert remedies()["Engine lost"] == "see `docs/how-to/engines.md#what-goes-wrong`"
