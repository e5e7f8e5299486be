"""What a flow run leaves: times, a summary as JSON, artifacts in Prefect's UI."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact
from prefect.logging import get_run_logger

from podline.documents.promotion import PROMOTION
from podline.errors import SanityError
from podline.figures import count, duration, metric_text
from podline.inventory.catalogue import run_of
from podline.measures import shown
from podline.plurals import plural
from podline.reporting.templates import markdown
from podline.stages.promotion import PromoteResult
from podline.stages.specs import ConvertResult, EvaluateResult, ReportResult, TrainResult
from podline.stages.tools import LearningRateResult
from podline.store.contract import Store
from podline.tasks.night import Night
from podline.tasks.page_links import PageLinks
from podline.tasks.promoting import outcome, tell_verdict
from podline.tasks.report_artifact import report_text
from podline.tasks.runs.artifact_keys import key_of
from podline.tasks.runs.this_run import add_tags

UNCHANGED = "unchanged"
"""The tag of a run that found every stage done."""


def published(
    night: Night,
    data: ConvertResult,
    trained: TrainResult,
    evaluated: EvaluateResult,
    verdict: PromoteResult | None,
    page: ReportResult,
) -> dict[str, Any]:
    """Put tags, warnings and artifacts on the flow run; return its summary.

    Raises:
        SanityError: the model failed its check.
    """
    unchanged = _unchanged_since(night, trained)
    if unchanged:
        get_run_logger().info("unchanged since %s", unchanged)
        add_tags(UNCHANGED)
    tell_verdict(verdict)
    _publish_artifacts(night, data, trained, evaluated, page, verdict, unchanged)
    if evaluated.failure:
        raise SanityError(f"{evaluated.failure}; the report: {night.store.where(page.html)}")
    return _summary(night, evaluated, page, verdict, unchanged)


def _unchanged_since(night: Night, trained: TrainResult) -> str:
    """Return the run, and when it was finished, if data, settings and code are as they were then; else nothing."""
    if not all(stage["reused"] for stage in night.stages.values()):
        return ""
    finished = datetime.fromtimestamp(run_of(night.store, trained.run).touched, UTC)
    return f"{trained.run}, {finished:%Y-%m-%d %H:%M} UTC"


def _summary(
    night: Night, evaluated: EvaluateResult, reported: ReportResult, promoted: PromoteResult | None, unchanged: str
) -> dict[str, Any]:
    """Return a run as JSON: name, metrics with intervals, promotion, where the report lies, each stage's seconds."""
    return {
        "run": evaluated.run,
        "unchanged_since": unchanged,
        "root": night.store.uri,
        "metrics": {name: metric.model_dump() for name, metric in evaluated.metrics.items()},
        "measure": evaluated.measure,
        f"untrained_{evaluated.measure}": evaluated.untrained,
        "promotion": _decision(promoted) if promoted else None,
        "report": night.store.where(reported.html),
        "report_markdown": night.store.where(reported.markdown),
        "stages": night.stages,
    }


def _decision(promoted: PromoteResult) -> dict[str, Any]:
    kept = promoted.model_dump(include={"promoted", "against", "refusals", "doubt", "detects", "compared"})
    return {"verdict": promoted.verdict, **kept}


def _publish_artifacts(
    night: Night,
    converted: ConvertResult,
    trained: TrainResult,
    evaluated: EvaluateResult,
    reported: ReportResult,
    promoted: PromoteResult | None,
    unchanged: str,
) -> None:
    """Put the report and a table of the key figures on the flow run."""
    store, recipe = night.store, night.recipe.name
    links = PageLinks(store)
    page, title = report_text(store, trained, reported, links), f"Report of {evaluated.run}"
    if unchanged:
        page = f"> **Unchanged since {unchanged}:** data, settings and code are the same.\n\n{page}"
        title = f"Unchanged since {unchanged}"
    create_markdown_artifact(page, key=key_of(recipe, "report"), description=title)
    rows = {
        measure.label: metric_text(measure.name, evaluated.metrics[measure.name])
        for measure in shown(evaluated.metrics)
    }
    rows["examples"] = ", ".join(f"{count(records)} {split}" for split, records in converted.splits.items())
    rows["training"] = f"{plural(trained.steps, 'step')} in {duration(trained.seconds)} on {trained.devices}"
    rows["promotion"] = markdown(outcome(promoted))
    if promoted:
        rows["promotion, every check"] = links.to(f"{trained.folder}/{PROMOTION}")
    rows["re-used"] = ", ".join(name for name, stage in night.stages.items() if stage["reused"]) or "nothing"
    rows["report"] = links.to(reported.html)
    create_table_artifact(
        [{"figure": name, "value": value} for name, value in rows.items()],
        key=key_of(recipe, "key-figures"),
        description=f"Key figures of {evaluated.run}",
    )


def publish_chart(store: Store, recipe: str, found: LearningRateResult) -> None:
    """Puts the chart of a search for a learning rate on the flow run, and its reasons as text."""
    # In the artifact itself: where no server serves the store, a browser elsewhere has no way to it.
    chart = base64.b64encode(store.read_bytes(found.chart)).decode()
    title = f"Suggested learning rate: {found.learning_rate:g}"
    create_image_artifact(f"data:image/png;base64,{chart}", key=key_of(recipe, "learning-rate"), description=title)
    first, *reasons = found.lines()
    text = [f"# {title}", "", *reasons, "", f"The chart: {PageLinks(store).to(found.chart)}"]
    create_markdown_artifact("\n".join(text), key=key_of(recipe, "learning-rate-reasons"), description=title)
    get_run_logger().info("%s; the chart is among the artifacts", first)
    for reason in reasons:
        get_run_logger().info(reason)
