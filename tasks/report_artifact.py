"""The report as an artifact in Prefect's UI: Markdown with the page's charts, and a link to the page."""

from __future__ import annotations

import base64

from podline.reporting.page_charts import Chart, charts_in
from podline.reporting.templates import markdown
from podline.stages.specs import ReportResult, TrainResult
from podline.store.contract import Store
from podline.store.sealed_text import INDEX
from podline.tasks.page_links import PageLinks

_SECTION = "\n## "


def report_text(store: Store, trained: TrainResult, reported: ReportResult, links: PageLinks) -> str:
    """The artifact's Markdown.

    Pictures are in the text itself: where no server serves the store, a browser elsewhere has no way to it.
    """
    text = store.read_bytes(reported.markdown).decode()
    charts = charts_in(store.read_bytes(reported.html).decode())
    head, section, rest = text.partition(_SECTION)
    parts = [head.strip(), _files(store, trained, reported, links)]
    if charts:
        parts.append("\n\n".join(["## Charts", *map(_image, charts)]))
    return "\n\n".join(parts) + "\n" + section + rest


def _files(store: Store, trained: TrainResult, reported: ReportResult, links: PageLinks) -> str:
    board = store.where(f"{trained.folder}/tensorboard")
    lines = [
        f"The page: {links.to(reported.html)}",
        f"All nights: {links.to(INDEX)}",
        f"TensorBoard: `tensorboard --logdir {board}`",
    ]
    return "\n\n".join(lines)


def _image(chart: Chart) -> str:
    alt = markdown(chart.alt.replace("[", "(").replace("]", ")"))
    title = alt.partition(". ")[0].rstrip(".")
    return f"**{title}**\n\n![{alt}](data:image/svg+xml;base64,{base64.b64encode(chart.svg.encode()).decode()})"
