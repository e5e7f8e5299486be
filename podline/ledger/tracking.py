"""Logs runs at a tracking server of MLflow as well: the setting ``tracking``, as ``mlflow:URI``.

One run of MLflow for each run of the store, found by the tag ``podline.run``: one that ends again updates it. What
MLflow has of ``metrics.jsonl`` is counted by a tag, so no line is logged twice.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import re
from typing import Any

from podline.documents.ledger_entry import Entry
from podline.documents.metrics_log import METRICS, FindingLine, figures_of, read_metrics
from podline.errors import SettingsError, one_line
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.settings import MLFLOW, export_mlflow_defaults, flat
from podline.stages.specs import WEIGHTS
from podline.store.contract import Store
from podline.store.page_links import PageLinks

RUN = "podline.run"
_LINES = "podline.lines"
# Of one request, and of one value.
_MOST_METRICS, _MOST_PARAMETERS, _LONGEST = 1000, 100, 6000
# All others are refused in names.
_REFUSED = re.compile(r"[^\w\-./ :]")


def require_tracker(tracking: str) -> None:
    """Check that the library of a tracker is installed.

    Raises:
        SettingsError: it is not.
    """
    if tracking and importlib.util.find_spec("mlflow") is None:
        raise SettingsError(
            f"tracking={tracking}: got no mlflow, expected it to be installed; `pip install 'podline[mlflow]'`"
        )


def track(tracking: str, store: Store, entry: Entry, recipe: Recipe, reporter: Reporter) -> None:
    """Log a run that was trained; a tracker that fails is a warning.

    Args:
        tracking: the setting.
        store: where the run lies.
        entry: the run's entry of the ledger.
        recipe: that it was trained with.
        reporter: told of a failure.
    """
    if entry.training is None:
        return
    try:
        _Tracked(tracking.removeprefix(MLFLOW), store, entry).log(recipe)
    except Exception as error:  # whatever a library or a server of others does, the run is done
        reporter.warn(f"the run is not logged at {tracking}: {one_line(error)}; it is when the run ends again")


class _Tracked:
    """The run of MLflow that stands for a run of the store."""

    def __init__(self, uri: str, store: Store, entry: Entry) -> None:
        export_mlflow_defaults()
        self._mlflow: Any = importlib.import_module("mlflow")
        self._client = self._mlflow.MlflowClient(uri)
        self._store, self._entry = store, entry
        self._run = self._found()

    def log(self, recipe: Recipe) -> None:
        """Log what MLflow does not have yet: parameters, series, figures, places."""
        self._log_parameters(recipe)
        self._log_series()
        self._log_evaluation()
        for name, value in self._tags().items():
            self._client.set_tag(self._run.info.run_id, name, value)
        self._client.set_terminated(self._run.info.run_id)

    def _found(self) -> Any:
        """Return the run with the tag, or a new one; the experiment has the recipe's name."""
        name, run = f"podline/{self._entry.recipe}", self._entry.run
        experiment = self._client.get_experiment_by_name(name)
        identity = experiment.experiment_id if experiment else self._client.create_experiment(name)
        found = self._client.search_runs([identity], f"tags.`{RUN}` = '{run}'", max_results=1)
        began = int(1000 * self._entry.began)
        return found[0] if found else self._client.create_run(identity, began, {RUN: run}, run_name=run)

    def _log_parameters(self, recipe: Recipe) -> None:
        """Log the recipe; MLflow changes no parameter, and those that a run's name does not depend on may differ."""
        parameters = {_REFUSED.sub("_", key): value for key, value in flat(recipe.model_dump(mode="json")).items()}
        new = [key for key in parameters if key not in self._run.data.params]
        for first in range(0, len(new), _MOST_PARAMETERS):
            some = [
                self._mlflow.entities.Param(key, _text(parameters[key]))
                for key in new[first : first + _MOST_PARAMETERS]
            ]
            self._client.log_batch(self._run.info.run_id, params=some)

    def _log_series(self) -> None:
        lines = read_metrics(self._store.local(f"runs/{self._entry.run}/{METRICS}"))
        series = [line for line in lines if not isinstance(line, FindingLine)]
        new = series[int(self._run.data.tags.get(_LINES, 0)) :]
        self._log_metrics(
            [self._metric(*figure, line.time, line.step) for line in new for figure in figures_of(line).items()]
        )
        self._client.set_tag(self._run.info.run_id, _LINES, str(len(series)))

    def _log_evaluation(self) -> None:
        """Log the figures of the evaluation, with the ends of their intervals, unless MLflow has them."""
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
