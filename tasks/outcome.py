"""What a flow run leaves: times, a summary as JSON, artifacts in Prefect's UI."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime
from typing import Any, TypeVar

from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact
from prefect.logging import get_run_logger

from podline.documents.promotion import PROMOTION
from podline.figures import count, duration, metric_text
from podline.inventory.catalogue import run_of
from podline.inventory.invalidation import IN_ORDER, forget
from podline.ledger.recording import Notes
from podline.measures import shown
from podline.plurals import plural
from podline.reporting.templates import markdown
from podline.stages.promotion import PromoteResult
from podline.stages.specs import ConvertResult, EvaluateResult, ReportResult, Result, Spec, TrainResult
from podline.stages.tools import LearningRateResult
from podline.store.contract import Store
from podline.tasks.promoting import outcome
from podline.tasks.report_artifact import report_text
from podline.tasks.runs.artifact_keys import key_of
from podline.tasks.runs.this_run import run_once
from podline.tasks.server.page_links import PageLinks
from podline.tasks.stage_task import StageTask

S = TypeVar("S", bound=Spec)
R = TypeVar("R", bound=Result)


class TimeSheet:
    """Runs stages, and has what they were given and answered, and what they took, noted for the ledger.

    Attributes:
        stages: for each, how long it took this time, how long when it was made, whether it was found.
    """

    def __init__(self, notes: Notes, start_from: str) -> None:
        """Begins with no stage.

        Args:
            notes: told of every stage.
            start_from: the name of a stage: it and those after it run again, though they may be done; they do so once,
                however often the flow run is retried. Anything else is none of them.
        """
        self._notes = notes
        self.stages: dict[str, dict[str, Any]] = {}
        self._again = IN_ORDER[IN_ORDER.index(start_from) :] if start_from in IN_ORDER else ()

    def run(self, stage: StageTask[S, R], spec: S) -> R:
        """A stage's result."""
        name, started = stage.stage.name, time.monotonic()
        if name in self._again:
            run_once(f"{name}-again", lambda: forget(spec))
        self._notes.asked(spec)
        result = stage(spec, self._notes.retried)
        self._notes.answered(spec, result, time.monotonic() - started)
        self.stages[name] = self._notes.entry.stages[name].model_dump()
        return result


def unchanged_since(store: Store, times: TimeSheet, trained: TrainResult) -> str:
    """The run, and when it was finished, if data, settings and code are as they were then; empty if not."""
    if not all(stage["reused"] for stage in times.stages.values()):
        return ""
    finished = datetime.fromtimestamp(run_of(store, trained.run).touched, UTC)
    return f"{trained.run}, {finished:%Y-%m-%d %H:%M} UTC"


def summary(
    store: Store,
    times: TimeSheet,
    evaluated: EvaluateResult,
    reported: ReportResult,
    promoted: PromoteResult | None,
    unchanged: str,
) -> dict[str, Any]:
    """A run in JSON: its name, metrics with intervals, the promotion, where the report lies, each stage's seconds."""
    return {
        "run": evaluated.run,
        "unchanged_since": unchanged,
        "root": store.uri,
        "metrics": {name: metric.model_dump() for name, metric in evaluated.metrics.items()},
        "measure": evaluated.measure,
        f"untrained_{evaluated.measure}": evaluated.untrained,
        "promotion": _decision(promoted) if promoted else None,
        "report": store.where(reported.html),
        "report_markdown": store.where(reported.markdown),
        "stages": times.stages,
    }


def _decision(promoted: PromoteResult) -> dict[str, Any]:
    kept = promoted.model_dump(include={"promoted", "against", "refusals", "doubt", "slide", "compared"})
    return {"verdict": promoted.verdict, **kept}


def publish_artifacts(
    store: Store,
    recipe: str,
    times: TimeSheet,
    converted: ConvertResult,
    trained: TrainResult,
    evaluated: EvaluateResult,
    reported: ReportResult,
    promoted: PromoteResult | None,
    unchanged: str,
) -> None:
    """Puts the report and a table of the key figures on the flow run."""
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
    rows["re-used"] = ", ".join(name for name, stage in times.stages.items() if stage["reused"]) or "nothing"
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
