"""The report as an artifact in Prefect's UI: its Markdown with the page's charts, and the way to what is not in it."""

from __future__ import annotations

import base64
from urllib.parse import quote

from podline.reporting.page_charts import Chart, charts_in
from podline.reporting.templates import markdown
from podline.stages import ReportResult, TrainResult
from podline.storage import Store

_SECTION = "\n## "
_BUCKET = "gs://"
# Opens for whoever is logged in to Google Cloud and may read the bucket.
_BUCKET_PAGE = "https://storage.cloud.google.com/"


def report_text(store: Store, trained: TrainResult, reported: ReportResult) -> str:
    """The artifact's Markdown.

    Pictures are in the text itself: a browser elsewhere has no way to the store.
    """
    text = store.read_bytes(reported.markdown).decode()
    charts = charts_in(store.read_bytes(reported.html).decode())
    head, section, rest = text.partition(_SECTION)
    parts = [head.strip(), _files(store, trained, reported)]
    if charts:
        parts.append("\n\n".join(["## Charts", *map(_image, charts)]))
    return "\n\n".join(parts) + "\n" + section + rest


def _files(store: Store, trained: TrainResult, reported: ReportResult) -> str:
    board = store.where(f"{trained.folder}/tensorboard")
    return f"The page: {_place(store.where(reported.html))}\n\nTensorBoard: `tensorboard --logdir {board}`"


def _place(where: str) -> str:
    """A file's place: a link, if a browser can follow one there."""
    if not where.startswith(_BUCKET):
        return f"`{where}`"
    return f"[{where}]({_BUCKET_PAGE}{quote(where.removeprefix(_BUCKET))})"


def _image(chart: Chart) -> str:
    alt = markdown(chart.alt.replace("[", "(").replace("]", ")"))
    title = alt.partition(". ")[0].rstrip(".")
    return f"**{title}**\n\n![{alt}](data:image/svg+xml;base64,{base64.b64encode(chart.svg.encode()).decode()})"
