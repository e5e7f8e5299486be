"""The report stage: writes a page about a run, as HTML and as Markdown, from the same blocks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from podline.base.entry_points import SECTIONS
from podline.base.progress import Reporter
from podline.documents.completion import read_result
from podline.recipes.parts import Registry
from podline.report import run_sections, verdict
from podline.report.blocks import Block, Pictures, Text, markdown_of
from podline.report.document import document
from podline.report.escaping import markdown
from podline.report.facts import RunFacts, gather
from podline.report.kind_report import reported_kind
from podline.report.sections import Section, blocks_of, sections_in
from podline.stages.completed import complete
from podline.stages.specs import ReportResult, ReportSpec
from podline.stages.table import stage_named
from podline.store.opening import open_store

HTML, MARKDOWN = "report.html", "report.md"
# Headings of the sections with the worst mistake: the first picture of _MISTAKES, the last picture of _PICTURES.
_MISTAKES, _PICTURES = "The most confident mistakes", "Pictures"
# Headings of the first sections of the page, in order; all other sections follow.
_FIRST = (
    "What next",
    "What differs",
    "Training",
    _MISTAKES,
    _PICTURES,
    "Classes",
    "Labels",
    "Findings",
    "What changed in the data",
    "Figures",
)


def report(spec: ReportSpec, reporter: Reporter) -> ReportResult:
    """Write ``report.html`` and ``report.md`` into the run's folder.

    Raises:
        StoreError: a file of the run or of its data set is missing, or the report cannot be written.
        ArtifactError: a file is damaged, or the evaluation is not the one in the spec.
        SettingsError: the run's kind of task has no reports.
    """
    started = time.perf_counter()
    store = open_store(spec.root)
    reporter.progress(0, 2, "files")
    run = gather(store, spec, reporter)
    shown = [(heading, blocks) for heading, blocks in _sections(run) if blocks]
    shown.sort(key=lambda found: _FIRST.index(found[0]) if found[0] in _FIRST else len(_FIRST))
    header = list(verdict.header(run, _worst(dict(shown))))
    page = document(f"{run.recipe.name}: {verdict.title(run)}", header, shown)
    texts = [markdown_of(header), *(f"## {markdown(heading)}\n\n{markdown_of(blocks)}" for heading, blocks in shown)]
    names = [f"{spec.record_folder}/{name}" for name in (HTML, MARKDOWN)]
    for name, text in zip(names, (page, "\n\n".join(texts) + "\n"), strict=True):
        store.publish_bytes(name, text.encode(), replace=True)
    reporter.progress(2, 2, "files")
    result = ReportResult(seconds=time.perf_counter() - started, html=names[0], markdown=names[1])
    complete(store, spec.record_folder, spec, result, names)
    return result


def _worst(sections: dict[str, list[Block]]) -> str:
    """Return a sentence about the worst mistake on the page, with the image's file name; empty without mistakes."""
    for heading, place in ((_MISTAKES, 0), (_PICTURES, -1)):
        shown = [one for block in sections.get(heading, ()) if isinstance(block, Pictures) for one in block.pictures]
        if shown:
            worst = shown[place]
            return f"The worst mistake is {', '.join(filter(None, (*worst.details[::-1], worst.caption)))}."
    return ""


def _sections(run: RunFacts) -> Iterator[tuple[str, list[Block]]]:
    """Yield heading and blocks of each section, also of sections without blocks."""
    yield from _filled([*sections_in(verdict), *reported_kind(run.evaluation).sections()], run)
    added = Registry("section", SECTIONS, row=Section).loaded()
    yield from _filled(added.objects.values(), run)
    yield "Sections that cannot be loaded", [Text(problem, "warning") for problem in added.problems]
    for name in run.spec.sections:
        stage = stage_named(name)
        lines = read_result(run.store, run.spec.record_folder, name, stage.result).lines(run.store.where)
        yield stage.section, [Text(line) for line in lines]
    yield from _filled(sections_in(run_sections), run)


def _filled(sections: Iterable[Section], run: RunFacts) -> Iterator[tuple[str, list[Block]]]:
    for each in sections:
        if each.kind in ("", run.evaluation.kind):
            yield each.heading, blocks_of(each, run)
