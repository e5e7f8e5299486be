"""The record of a search: its spec and its trials so far, as one JSON document in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from podline.base.frozen import Frozen, Json
from podline.documents.metrics_log import AnnealingLine, EarlyStopLine, EvaluationLine, MetricsLine
from podline.documents.reading import read_model
from podline.search.spaces import Space
from podline.stages.base import TrainableSpec
from podline.store.contract import Store
from podline.training.decisions import value_of

DOCUMENT, PAGE = "search.json", "search.html"

State = Literal["complete", "pruned", "failed"]


class SearchSpec(TrainableSpec[Any]):
    """A search over values of a recipe. With more trials or minutes, the same search continues."""

    not_hashed = TrainableSpec.not_hashed | {"trials", "minutes"}

    spaces: tuple[Space, ...] = Field(min_length=1)
    trials: int = Field(ge=1, description="the number of trials, including that of the recipe's own values")
    minutes: float = Field(
        default=0.0, ge=0, description="the time limit; a trial that would not fit is not started; 0 for no limit"
    )

    @property
    def folder(self) -> str:
        """Return the folder of the search's record."""
        return f"searches/{self.recipe.name}-{self.digest()[:12]}"

    @property
    def metric(self) -> Literal["loss", "error"]:
        """Return the metric to minimise: ``error`` if an answer of the kind is right or wrong, else ``loss``."""
        return "error" if self.recipe.task.has_error else "loss"


class Trial(Frozen):
    """A trial of a search.

    Attributes:
        number: number of the trial; 0 has the recipe's own values.
        values: path → value.
        run: name of the run; empty if its values could not be trained.
        state: ``complete``; ``pruned`` if other trials were better; ``failed`` if the values cannot be trained.
        value: the metric of the run's final state; None if the trial did not complete.
        evaluations: the metric after each evaluation.
        examples: number of examples in an evaluation.
        seconds: duration.
        cause: why the trial did not complete.
    """

    number: int
    values: dict[str, Json]
    run: str = ""
    state: State
    value: float | None = None
    evaluations: tuple[float, ...] = ()
    examples: int = 0
    seconds: float = 0.0
    cause: str = ""


class SearchDocument(Frozen):
    """A search with its trials so far."""

    spec: SearchSpec
    trials: tuple[Trial, ...] = ()

    @property
    def complete(self) -> list[Trial]:
        """Return the trials with a value, best first; of two equal trials the earlier one first."""
        found = [trial for trial in self.trials if trial.value is not None]
        return sorted(found, key=lambda trial: (trial.value, trial.number))


def read_search(store: Store, spec: SearchSpec) -> SearchDocument:
    """Return the record of a search; a new search has no trials.

    Raises:
        ArtifactError: the record is damaged.
    """
    name = f"{spec.folder}/{DOCUMENT}"
    if not store.exists(name):
        return SearchDocument(spec=spec)
    remedy = "delete it: the next search finds the runs of its trials"
    return read_model(store, name, SearchDocument, "a record of a search", remedy).model_copy(update={"spec": spec})


def measured(lines: Sequence[MetricsLine], metric: str) -> dict[str, Any]:
    """Return a trial's ``value`` (of the final state), ``evaluations`` and ``examples``; empty without evaluations."""
    evaluations = {line.step: line for line in lines if isinstance(line, EvaluationLine)}
    if not evaluations:
        return {}
    last, state = next(reversed(evaluations.values())), max(evaluations)
    for line in reversed(lines):
        if isinstance(line, AnnealingLine) or (isinstance(line, EarlyStopLine) and line.restored):
            state = line.state
            break
    return {
        "value": value_of(metric, evaluations[state]),
        "evaluations": tuple(value_of(metric, line) for line in evaluations.values()),
        "examples": last.examples,
    }
