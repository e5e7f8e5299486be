"""The report stage: writes a page about a run."""

from __future__ import annotations

import time

from podline.base.progress import Reporter
from podline.report.facts import gather
from podline.report.page import pages
from podline.stages.completed import complete
from podline.stages.specs import ReportResult, ReportSpec
from podline.store.opening import open_store

HTML, MARKDOWN = "report.html", "report.md"


def report(spec: ReportSpec, reporter: Reporter) -> ReportResult:
    """Write ``report.html`` and ``report.md`` into the run's folder.

    Args:
        spec: the run, its data set and its evaluation.
        reporter: reports each file, and damaged files of other runs.

    Raises:
        StoreError: a file of the run or of its data set is missing, or the report cannot be written.
        ArtifactError: a file is damaged, or the evaluation is not the one in the spec.
        SettingsError: a section of an installed package fails.
    """
    started = time.perf_counter()
    store = open_store(spec.root)
    html, markdown = (f"{spec.record_folder}/{name}" for name in (HTML, MARKDOWN))
    reporter.progress(0, 2, "files")
    made = pages(gather(store, spec, reporter))
    store.publish_bytes(html, made.html.encode(), replace=True)
    store.publish_bytes(markdown, made.markdown.encode(), replace=True)
    reporter.progress(2, 2, "files")
    result = ReportResult(seconds=time.perf_counter() - started, html=html, markdown=markdown)
    complete(store, spec.record_folder, spec, result, (html, markdown))
    return result
