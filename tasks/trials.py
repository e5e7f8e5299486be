"""A trial of a search in a flow: a training as a task, with its entry in the ledger."""

from __future__ import annotations

from dataclasses import replace

from prefect.runtime import flow_run

from podline import settings
from podline.ledger.recording import recorded
from podline.progress import Reporter
from podline.stages.specs import TrainResult, TrainSpec
from podline.store.contract import Store
from podline.tasks.runs.run_log import stage_listener
from podline.tasks.stages import train


def trained(store: Store, spec: TrainSpec) -> TrainResult:
    """Train a trial, as a run of its own.

    Raises:
        PodlineError: what the training raised.
    """
    reporter = Reporter("ledger", stage_listener("ledger"))
    with (
        store.using([spec.dataset_folder]),
        recorded(store, spec.recipe.name, "flow", reporter, flow_run=str(flow_run.id or "")) as notes,
    ):
        notes.planned(spec.recipe, settings.load(), spec.strategy)
        result = replace(train, about=spec.run)(spec, notes)
        notes.dropped = result.reused
    return result
