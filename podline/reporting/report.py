"""The report stage: one page about a run."""

from __future__ import annotations

import time

from podline.progress import Reporter
from podline.reporting.facts import gather
from podline.reporting.page import pages
from podline.stages.completed import complete
from podline.stages.specs import ReportResult, ReportSpec
from podline.store.opening import open_store

HTML = "report.html"
MARKDOWN = "report.md"


def report(spec: ReportSpec, reporter: Reporter) -> ReportResult:
    """Writes ``report.html`` and ``report.md`` into the run's folder.

    Args:
        spec: which run, which data set, which evaluation.
        reporter: told of each of the two files, and of damaged files of other runs.

    Raises:
        StoreError: a file of the run or of its data set is not there, or the report cannot be written.
        ArtifactError: a file is damaged, or the evaluation is not the one that the spec names.
        SettingsError: a section of an installed package fails.
    """
    started = time.perf_counter()
    store = open_store(spec.root)
    reporter.progress(0, 2, "files")
    html, markdown = pages(gather(store, spec, reporter))
    for done, (file, text) in enumerate({HTML: html, MARKDOWN: markdown}.items(), start=1):
        store.publish_bytes(f"{spec.record_folder}/{file}", text.encode(), replace=True)
        reporter.progress(done, 2, "files")
    result = ReportResult(
        seconds=time.perf_counter() - started,
        html=f"{spec.record_folder}/{HTML}",
        markdown=f"{spec.record_folder}/{MARKDOWN}",
    )
    complete(store, spec.record_folder, spec, result, (result.html, result.markdown))
    return result
