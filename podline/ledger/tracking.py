"""Logs runs to an MLflow tracking server, given by the setting ``tracking`` as ``mlflow:URI``.

Each run of the store has one MLflow run with the tag ``podline.run``, which is updated when the run ends again. The tag
``podline.lines`` counts the logged lines of ``metrics.jsonl``, so that no line is logged twice.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from typing import Any

from podline.base.errors import one_line
from podline.base.progress import Reporter
from podline.documents.ledger_entry import Entry
from podline.documents.metrics_log import METRICS, FindingLine, MetricsLines, figures_of
from podline.recipes.settings import Recipe
from podline.settings.environment import export_mlflow_defaults
from podline.settings.machine import MLFLOW, flat
from podline.stages.specs import WEIGHTS
from podline.store.contract import Store
from podline.store.page_links import PageLinks

RUN = "podline.run"
_LINES = "podline.lines"
# MLflow's limits: metrics and parameters per request, characters of a parameter's value.
_MOST_METRICS, _MOST_PARAMETERS, _LONGEST = 1000, 100, 6000
# MLflow refuses all other characters in names.
_REFUSED = re.compile(r"[^\w\-./ :]")


def track(tracking: str, store: Store, entry: Entry, recipe: Recipe, reporter: Reporter) -> None:
    """Log a trained run to MLflow; an error of MLflow only causes a warning.

    Args:
        tracking: the setting ``tracking``, ``mlflow:URI``.
        store: the store of the run.
        entry: the run's entry of the ledger.
        recipe: the recipe of the run.
        reporter: reports a failure.
    """
    if entry.training is None:
        return
    try:
        _Tracked(tracking.removeprefix(MLFLOW), store, entry).log(recipe)
    except Exception as error:  # a tracking server must not make a finished run fail
        reporter.warn(
            f"the run could not be logged to {tracking}: {one_line(error)}; to log it, repeat the command of the run"
        )


class _Tracked:
    """The MLflow run that belongs to a run of the store."""

    def __init__(self, uri: str, store: Store, entry: Entry) -> None:
        export_mlflow_defaults()
        self._mlflow: Any = importlib.import_module("mlflow")
        self._client = self._mlflow.MlflowClient(uri)
        self._store, self._entry = store, entry
        self._run = self._found()

    def log(self, recipe: Recipe) -> None:
        """Log what MLflow does not have yet: parameters, training metrics, evaluation, and paths as tags."""
        self._log_parameters(recipe)
        self._log_series()
        self._log_evaluation()
        for name, value in self._tags().items():
            self._client.set_tag(self._run.info.run_id, name, value)
        self._client.set_terminated(self._run.info.run_id)

    def _found(self) -> Any:
        """Find or create the MLflow run with the tag ``podline.run``, in the experiment ``podline/RECIPE``."""
        name, run = f"podline/{self._entry.recipe}", self._entry.run
        experiment = self._client.get_experiment_by_name(name)
        identity = experiment.experiment_id if experiment else self._client.create_experiment(name)
        found = self._client.search_runs([identity], f"tags.`{RUN}` = '{run}'", max_results=1)
        began = int(1000 * self._entry.began)
        return found[0] if found else self._client.create_run(identity, began, {RUN: run}, run_name=run)

    def _log_parameters(self, recipe: Recipe) -> None:
        """Log the recipe's settings that MLflow does not have yet, since MLflow cannot change a parameter."""
        parameters = {_REFUSED.sub("_", key): value for key, value in flat(recipe.model_dump(mode="json")).items()}
        new = [key for key in parameters if key not in self._run.data.params]
        for first in range(0, len(new), _MOST_PARAMETERS):
            some = [
                self._mlflow.entities.Param(key, _text(parameters[key]))
                for key in new[first : first + _MOST_PARAMETERS]
            ]
            self._client.log_batch(self._run.info.run_id, params=some)

    def _log_series(self) -> None:
        lines = MetricsLines(self._store.local(f"runs/{self._entry.run}/{METRICS}"))
        known, count = int(self._run.data.tags.get(_LINES, 0)), 0
        figures = list[Any]()
        for line in lines:
            if isinstance(line, FindingLine):
                continue
            if count >= known:
                figures += [self._metric(*figure, line.time, line.step) for figure in figures_of(line).items()]
            count += 1
        self._log_metrics(figures)
        self._client.set_tag(self._run.info.run_id, _LINES, str(count))

    def _log_evaluation(self) -> None:
        """Log the evaluation's metrics with their interval ends, unless MLflow already has the values."""
        entry, known = self._entry, self._run.data.metrics
        if entry.outcome is None or entry.training is None:
            return
        figures = {
            f"evaluation/{name}{end}": value
            for name, metric in entry.outcome.metrics.items()
            for end, value in (("", metric.value), ("/low", metric.low), ("/high", metric.high))
            if not end or metric.low < metric.high
        }
        step = entry.training.steps
        self._log_metrics(
            [
                self._metric(name, value, entry.ended, step)
                for name, value in figures.items()
                if known.get(name) != value
            ]
        )

    def _tags(self) -> dict[str, str]:
        entry, store = self._entry, self._store
        tags = {"podline.recipe": entry.recipe, "podline.model": store.where(f"runs/{entry.run}/{WEIGHTS}")}
        if entry.report:
            tags |= {
                "podline.report": store.where(entry.report),
                "mlflow.note.content": f"Report: {PageLinks(store).to(entry.report)}",
            }
        return tags

    def _metric(self, name: str, value: float, at: float, step: int) -> Any:
        return self._mlflow.entities.Metric(_REFUSED.sub("_", name), value, int(1000 * at), step)

    def _log_metrics(self, metrics: list[Any]) -> None:
        finite = [metric for metric in metrics if math.isfinite(metric.value)]
        for first in range(0, len(finite), _MOST_METRICS):
            self._client.log_batch(self._run.info.run_id, metrics=finite[first : first + _MOST_METRICS])


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value))[:_LONGEST]
