"""``podline runs``: the training runs of a store."""

from __future__ import annotations

from typing import Any

import click

from podline.catalogue import Run, run_of, runs
from podline.commands import nights, pages
from podline.commands.options import json_option, load_settings, say, say_json, store_options
from podline.reporting.figures import METRIC_NAMES, duration, metric_text, moment
from podline.stages import Metric
from podline.storage import Store, open_store


@click.group("runs", cls=pages.Group)
def runs_group() -> None:
    """Training runs: what was trained, how good it is, where its report lies."""


runs_group.add_command(nights.index)


@runs_group.command("list")
@store_options
@json_option
def list_runs(as_json: bool, **options: Any) -> None:
    """Every run of a store, the last touched first.

      podline runs list --root podline-root

    Next: `podline runs show RUN`.
    """
    store = open_store(load_settings(options).root)
    found = runs(store)
    if as_json:
        say_json([_document(store, run) for run in found])
    elif not found:
        say([f"{store.uri} has no runs; make one with `podline run` or `podline train`"])
    else:
        width = max(len(run.name) for run in found)
        say([f"{run.name:{width}}  {_figure(run):30} {_state(run):24} {moment(run.touched)}" for run in found])


@runs_group.command("show")
@click.argument("name", metavar="RUN")
@store_options
@json_option
def show_run(name: str, as_json: bool, **options: Any) -> None:
    """One run: its stages, its figures, its report.

      podline runs show sample-0123456789ab --root podline-root

    The page opens in any browser and needs no other file.
    """
    store = open_store(load_settings(options).root)
    run = run_of(store, name)
    if as_json:
        say_json(_document(store, run))
        return
    lines = [f"{run.name}, last touched {moment(run.touched)}", f"{store.where(run.folder)}", ""]
    lines += [f"{stage:10}{duration(record.result.get('seconds', 0.0))}" for stage, record in run.stages.items()]
    lines += [f"{key:10}{metric_text(key, metric)}" for key, metric in _metrics(run).items()]
    if "report" in run.stages:
        lines.append(f"{'page':10}{store.where(run.stages['report'].result['html'])}")
    say(lines)


def _metrics(run: Run) -> dict[str, Metric]:
    record = run.stages.get("evaluate")
    return {key: Metric.model_validate(value) for key, value in record.result["metrics"].items()} if record else {}


def _figure(run: Run) -> str:
    record = run.stages.get("evaluate")
    if record is None:
        return "not evaluated"
    measure = record.result.get("measure", "top1")
    return f"{METRIC_NAMES[measure]} {metric_text(measure, _metrics(run)[measure])}"


def _state(run: Run) -> str:
    return ", ".join(run.stages)


def _document(store: Store, run: Run) -> dict[str, Any]:
    return {
        "run": run.name,
        "folder": store.where(run.folder),
        "touched": run.touched,
        "metrics": {key: metric.model_dump() for key, metric in _metrics(run).items()},
        "report": store.where(run.stages["report"].result["html"]) if "report" in run.stages else None,
        "stages": {stage: record.result for stage, record in run.stages.items()},
    }
