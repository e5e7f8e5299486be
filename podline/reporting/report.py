"""The last stage: one page about a run, for whoever was not there."""

from __future__ import annotations

import time

from podline.progress import Reporter
from podline.reporting import page
from podline.reporting.facts import gather
from podline.stages import ReportResult, ReportSpec, complete
from podline.storage import open_store

HTML = "report.html"
MARKDOWN = "report.md"


def report(spec: ReportSpec, reporter: Reporter) -> ReportResult:
    """Writes ``report.html`` and ``report.md`` into the run's folder.

    Args:
        spec: which run, which data set, which evaluation.
        reporter: told of each of the two files.

    Raises:
        StoreError: a file of the run or of its data set is not there, or the report cannot be written.
        ArtifactError: a file is damaged, or the evaluation is not the one that the spec names.
    """
    started = time.perf_counter()
    store = open_store(spec.root)
    reporter.progress(0, 2, "files")
    facts = gather(store, spec)
    names = {HTML: page.html, MARKDOWN: page.markdown}
    for done, (file, render) in enumerate(names.items(), start=1):
        store.publish_bytes(f"{spec.folder}/{file}", render(facts).encode(), replace=True)
        reporter.progress(done, len(names), "files")
    result = ReportResult(
        seconds=time.perf_counter() - started,
        html=f"{spec.folder}/{HTML}",
        markdown=f"{spec.folder}/{MARKDOWN}",
    )
    complete(store, spec.folder, spec, result, (result.html, result.markdown))
    return result
