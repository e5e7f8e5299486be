"""The report stage: writes a page about a run."""

from __future__ import annotations

import time

from podline.progress import Reporter
from podline.reporting.facts import gather
from podline.reporting.page import pages
from podline.stages.completed import complete
from podline.stages.specs import ReportResult, ReportSpec
from podline.store.opening import open_store

FILES = {"html": "report.html", "markdown": "report.md", "charts": "report-charts.md"}


def report(spec: ReportSpec, reporter: Reporter) -> ReportResult:
    """Write ``report.html``, ``report.md`` and ``report-charts.md`` into the run's folder.

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
    names = {form: f"{spec.record_folder}/{file}" for form, file in FILES.items()}
    reporter.progress(0, len(names), "files")
    made = pages(gather(store, spec, reporter))._asdict()
    for done, (form, name) in enumerate(names.items(), start=1):
        store.publish_bytes(name, made[form].encode(), replace=True)
        reporter.progress(done, len(names), "files")
    took = time.perf_counter() - started
    result = ReportResult(seconds=took, html=names["html"], markdown=names["markdown"], charts=names["charts"])
    complete(store, spec.record_folder, spec, result, tuple(names.values()))
    return result
