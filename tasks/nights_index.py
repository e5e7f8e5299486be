"""Writes the index of a store's nights when a training flow ends, and links to it on the run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from markupsafe import Markup
from prefect.artifacts import create_markdown_artifact
from prefect.runtime import flow_run

from podline import settings
from podline.errors import PodlineError
from podline.progress import Reporter
from podline.reporting.nights_page import write_index
from podline.reporting.templates import markdown
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.store.sealed_text import INDEX
from podline.tasks.page_links import PageLinks
from podline.tasks.parameters import TrainingForm
from podline.tasks.runs.artifact_keys import key_of
from podline.tasks.runs.run_log import stage_listener

# How many nights, and what is said of the last; what else there is follows as a link within the page.
_HEADLINE = re.compile("<h1><strong>(.*?)</strong>(.*?)(?:<a |</h1>)", re.DOTALL)


@contextlib.contextmanager
def index_afterwards(parameters: TrainingForm) -> Iterator[None]:
    """Writes the index after its body; one that is cancelled is left to the next night.

    Args:
        parameters: of the flow run.
    """
    try:
        yield
    except Exception:
        _write_index(parameters)
        raise
    _write_index(parameters)


def _write_index(parameters: TrainingForm) -> None:
    try:
        store = open_store(parameters.machine.root or settings.load().root)
        write_index(store)
    except PodlineError as error:
        # The night itself is done, and its report is there.
        Reporter("index", stage_listener("index")).warn(f"the index of nights is not up to date: {error}")
        return
    # A server that is away for a moment must not hide why a night failed.
    with contextlib.suppress(Exception):
        if flow_run.id:
            create_markdown_artifact(
                index_text(store),
                key=key_of(parameters.training_recipe().name, "nights"),
                description="All nights of the store",
            )


def index_text(store: Store) -> str:
    """The way to the index, and what it says first."""
    says = _HEADLINE.search(store.read_bytes(INDEX).decode())
    # Its tags are taken away.
    headline = markdown(Markup(": ".join(says.groups())).striptags()) if says else ""  # noqa: S704
    return f"# All nights\n\n{PageLinks(store).to(INDEX)}\n\n{headline}\n"
