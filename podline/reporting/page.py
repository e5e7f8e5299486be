"""A run's report: the HTML page and its Markdown twin, from the same blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from podline import figures
from podline.kinds.table import kind_of
from podline.reporting import charts, run_sections, verdict
from podline.reporting.blocks import Block, Text, html_of, markdown_of
from podline.reporting.facts import RunFacts
from podline.reporting.sections import Section, blocks_of, installed, sections_in
from podline.reporting.templates import MARKDOWN_TEMPLATES, TEMPLATES, Markdown
from podline.store.contract import INDEX


def pages(run: RunFacts) -> tuple[str, str]:
    """Return the page, one self-contained HTML document, and its twin in Markdown, without charts and pictures.

    Raises:
        SettingsError: a section of an installed package raises, or cannot be loaded.
    """
    shown = [(heading, blocks) for heading, blocks in _sections(run) if blocks]
    content = verdict.content(run, kind_of(run.evaluation).headline(run)) | {
        "run": run.spec.run,
        "index": "../" * len(run.spec.record_folder.split("/")) + INDEX,
        "finished": figures.moment(run.events[-1].time) if run.events else "",
    }
    html = TEMPLATES.get_template("report.html").render(
        content,
        charts=verdict.charts(run) | {"verdict": charts.verdict(run.evaluation)},
        sections=[(heading, html_of(blocks)) for heading, blocks in shown],
    )
    markdown = MARKDOWN_TEMPLATES.get_template("report.md").render(
        content, sections=[(heading, Markdown(markdown_of(blocks))) for heading, blocks in shown]
    )
    return html, markdown


def _sections(run: RunFacts) -> Iterator[tuple[str, list[Block]]]:
    """Yield each section's heading and blocks, in the order of the page."""
    yield from _filled([*sections_in(verdict), *kind_of(run.evaluation).sections()], run)
    yield from _filled(installed(), run)
    for heading, lines in run.stage_sections:
        yield heading, [Text(line) for line in lines]
    yield from _filled(sections_in(run_sections), run)


def _filled(sections: Iterable[Section], run: RunFacts) -> Iterator[tuple[str, list[Block]]]:
    for each in sections:
        if each.kind in ("", run.evaluation.kind):
            yield each.heading, blocks_of(each, run)
