"""Publishes a flow run's tags, warnings and artifacts in Prefect's UI, and its summary as JSON."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from prefect.artifacts import create_image_artifact, create_markdown_artifact
from prefect.logging import get_run_logger

from podline.base.errors import SanityError
from podline.base.figures import count, duration, short_moment
from podline.base.plurals import plural
from podline.base.stopwatch import measured
from podline.documents.promotion import PROMOTION
from podline.recipes.measures import metric_text, shown
from podline.report.escaping import markdown
from podline.search.searching import SearchResult
from podline.stages.specs import ConvertResult, EvaluateResult, PromoteResult, ReportResult, TrainResult
from podline.stages.tools import LearningRateResult
from podline.store.contract import INDEX, Store
from podline.store.page_links import PageLinks
from podline.tasks.run import Night
from podline.tasks.server import add_tags, key_of
from podline.tasks.shown import say_first

UNCHANGED = "unchanged"
"""The tag of a run that reused every stage."""
REFUSED = "not-promoted"
"""The tag of a run whose model is refused as champion."""
UNDECIDED = "undecided"
"""The tag of a run whose model is undecided."""

_SECTION = "\n## "


class ChainResults(NamedTuple):
    """The results of a run's stages; ``verdict`` is None if no promotion was asked for."""

    data: ConvertResult
    trained: TrainResult
    evaluated: EvaluateResult
    verdict: PromoteResult | None
    page: ReportResult


@measured("between")
def published(night: Night, results: ChainResults) -> dict[str, Any]:
    """Put tags, warnings and artifacts on the flow run; return its summary.

    Returns:
        The run as JSON: name, metrics with intervals, promotion, place of the report, each stage's seconds.

    Raises:
        SanityError: the model failed its check.
    """
    trained, evaluated, verdict, page = results[1:]
    unchanged = _unchanged_since(night, trained)
    if unchanged:
        get_run_logger().info("unchanged since %s", unchanged)
        add_tags(UNCHANGED)
    if verdict and not verdict.promoted:
        add_tags(UNDECIDED if verdict.verdict == "undecided" else REFUSED)
        get_run_logger().warning(outcome(verdict))
    links = PageLinks(night.store)
    note = f"> **Unchanged since {unchanged}:** data, settings and code are the same." if unchanged else ""
    title = f"Unchanged since {unchanged}" if unchanged else f"Report of {trained.run}"
    text = report_text(night.store, trained, page, links, note)
    create_markdown_artifact(text, key=key_of(night.recipe.name, "report"), description=title)
    opens = f"{links.to(page.html, 'Open the report')} of {evaluated.run}"
    rows = (f"| {name} | {value} |" for name, value in _key_figures(night, results, links).items())
    create_markdown_artifact(
        "\n".join((opens, "", "| figure | value |", "|---|---|", *rows)),
        key=key_of(night.recipe.name, "key-figures"),
        description=f"Key figures of {evaluated.run}",
    )
    say_first(night.recipe.name, opens, title)
    get_run_logger().info("the report: %s", links.address(page.html) or night.store.where(page.html))
    if evaluated.failure:
        raise SanityError(f"{evaluated.failure}; the report: {night.store.where(page.html)}")
    decision = {"promoted", "reference", "refusals", "warnings", "doubt", "thresholds", "compared"}
    return {
        "run": evaluated.run,
        "unchanged_since": unchanged,
        "root": night.store.uri,
        "metrics": {name: metric.model_dump() for name, metric in evaluated.metrics.items()},
        "measure": evaluated.measure,
        f"untrained_{evaluated.measure}": evaluated.untrained,
        "promotion": {"verdict": verdict.verdict, **verdict.model_dump(include=decision)} if verdict else None,
        "report": night.store.where(page.html),
        "report_markdown": night.store.where(page.markdown),
        "stages": night.stages,
    }


def _unchanged_since(night: Night, trained: TrainResult) -> str:
    """Return 'RUN, TIME' of the run whose results all stages reused; empty if any stage did work."""
    if not all(stage["reused"] for stage in night.stages.values()):
        return ""
    records = night.store.listing(f"{trained.folder}/stages")
    return f"{trained.run}, {short_moment(max(record.published for record in records))} UTC"


def outcome(promoted: PromoteResult | None) -> str:
    """Return the verdict in one line, with one reason at most, for the table of key figures."""
    if promoted is None:
        return "not asked for"
    return "; ".join(filter(None, (promoted.headline, promoted.reason, *promoted.notes)))


def _key_figures(night: Night, results: ChainResults, links: PageLinks) -> dict[str, str]:
    data, trained, evaluated, verdict, _ = results
    rows: dict[str, str] = {
        markdown(measure.label): markdown(metric_text(measure.name, evaluated.metrics[measure.name]))
        for measure in shown(evaluated.metrics)
    }
    rows["examples"] = ", ".join(f"{count(records)} {split}" for split, records in data.splits.items())
    rows["training"] = f"{plural(trained.steps, 'step')} in {duration(trained.seconds)} on {markdown(trained.devices)}"
    rows["promotion"] = markdown(outcome(verdict))
    if verdict:
        rows["promotion, every check"] = links.to(f"{trained.folder}/{PROMOTION}")
    rows["re-used"] = ", ".join(name for name, stage in night.stages.items() if stage["reused"]) or "nothing"
    return rows


def report_text(store: Store, trained: TrainResult, reported: ReportResult, links: PageLinks, note: str) -> str:
    """Return the verdict of the report as Markdown, after links to its page and the note.

    The rest is on the page: a copy in each run's artifacts would take most of the server's database.
    """
    verdict, _, _ = store.read_bytes(reported.markdown).decode().partition(_SECTION)
    parts = [
        f"{links.to(reported.html, 'Open the report')} · {links.to(INDEX, 'all nights')}",
        *filter(None, (note,)),
        verdict.strip(),
        f"TensorBoard: `tensorboard --logdir {store.where(f'{trained.folder}/tensorboard')}`",
    ]
    return "\n\n".join(parts) + "\n"


def publish_chart(store: Store, recipe: str, found: LearningRateResult) -> None:
    """Put the chart of a search for a learning rate on the flow run, and its reasons as text."""
    # Embedded in the artifact, since a browser on another machine may have no access to the store.
    chart = base64.b64encode(store.read_bytes(found.chart)).decode()
    title = f"Suggested learning rate: {found.learning_rate:g}"
    create_image_artifact(f"data:image/png;base64,{chart}", key=key_of(recipe, "learning-rate"), description=title)
    first, *reasons, _ = found.lines()
    text = [f"# {title}", "", *reasons, "", f"The chart: {PageLinks(store).to(found.chart)}"]
    create_markdown_artifact("\n".join(text), key=key_of(recipe, "learning-rate-reasons"), description=title)
    get_run_logger().info("%s; the chart is among the artifacts", first)
    for reason in reasons:
        get_run_logger().info(reason)


def publish_search(store: Store, recipe: str, found: SearchResult) -> None:
    """Put the verdict of a search on the flow run, and a link to its page."""
    *lines, _ = found.lines()
    text = ["# Search", *map(markdown, lines), f"The page: {PageLinks(store).to(found.page)}"]
    create_markdown_artifact("\n\n".join(text), key=key_of(recipe, "search"), description=found.verdict)
    for line in lines:
        get_run_logger().info(line)
