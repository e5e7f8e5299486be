"""Runs a search: trials one after the other, each a separate training; the record is written after each.

The record is the only memory. A search that was killed reads it, proposes the same next values, and resumes the
training from its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from podline.base.errors import DivergenceError, PrunedError, SettingsError, one_line
from podline.base.figures import duration
from podline.base.frozen import Json
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.documents.completion import completion_name, record_files
from podline.documents.manifest import manifest_digest, read_manifest
from podline.documents.metrics_log import METRICS, MetricsLines
from podline.ledger.inventory.catalogue import dataset_for
from podline.ledger.recording import plain
from podline.recipes import registry
from podline.recipes.own_code import with_code
from podline.recipes.settings import Recipe
from podline.search.proposing import limits, next_values
from podline.search.spaces import spaces_of
from podline.search.suspects.folds import Train
from podline.search.trials import DOCUMENT, PAGE, SearchDocument, SearchSpec, Trial, measured, read_search
from podline.search.verdict import judged
from podline.settings.machine import flat
from podline.settings.strategies import WORKERS, StrategyName
from podline.stages.base import Result, Where
from podline.stages.from_recipe import settled, training_spec, with_checksum
from podline.stages.specs import Pruning, TrainSpec
from podline.store.contract import Store

# The stage whose completion record lists the files of a search.
_STAGE = "search"
# The share of the training split that is held out if the recipe holds out nothing.
_HELD_OUT = 0.1


class SearchResult(Result):
    """The result of a search; ``folder`` has the record and the page."""

    folder: str = Field(description="the folder's name in the store")
    page: str = Field(description="the page's name in the store")
    trials: dict[str, int] = Field(description="the number of trials in each state")
    ending: str = Field(description="why the search ended early; empty if all trials were run")
    run: str = Field(description="the run of the best trial")
    values: dict[str, Json] = Field(description="the values of the best trial, by path")
    better: bool | None = Field(
        description="whether the best trial is significantly better than the recipe's own values; None without a test"
    )
    verdict: str = Field(description="the verdict as text")

    def lines(self, where: Where = str, /) -> list[str]:
        """Return the best values, the verdict, and the page."""
        counts = ", ".join(f"{number} {state}" for state, number in self.trials.items())
        best = " ".join(f"{path}={value}" for path, value in self.values.items())
        return [
            f"{plural(sum(self.trials.values()), 'trial')} in {duration(self.seconds)}: {counts}",
            *filter(None, (self.ending,)),
            self.verdict,
            f"best: {best}, {self.run}",
            where(self.page),
        ]


def search_spec(
    store: Store,
    recipe: Recipe,
    over: Sequence[str],
    reporter: Reporter,
    *,
    trials: int,
    minutes: float = 0.0,
    fingerprint: str | None = None,
    strategy: StrategyName = "auto",
) -> SearchSpec:
    """Return the spec of a search.

    Args:
        store: the store.
        recipe: the recipe whose values are searched.
        over: the spaces, each as ``PATH=SPACE``.
        reporter: reports the choices.
        trials: number of trials, including that of the recipe's own values.
        minutes: see :class:`SearchSpec`.
        fingerprint: the start of the data set's fingerprint; by default the newest data set.
        strategy: the distribution strategy of trials.

    Raises:
        SettingsError: a space is invalid for the recipe, or the strategy uses several processes.
        StoreError: the data set does not exist.
    """
    if strategy == WORKERS:
        raise SettingsError(f"got strategy={strategy}, a search trains in one process; give auto, cpu, gpu or tpu")
    recipe = settled(store, recipe)
    # The share that `fit` has chosen is too small to compare trials by, so it is replaced; a person's share is kept.
    own = recipe.fit and recipe.fit.least_validation
    share = recipe.validation_share if recipe.validation_share and not own else _HELD_OUT
    holding_out = registry.override(recipe, {"validation_share": share})
    spaces = spaces_of(over, holding_out)
    dataset = dataset_for(store, recipe, fingerprint, reporter)
    if not read_manifest(store, dataset.folder).has_validation:
        recipe = holding_out
        reporter.log(f"validation_share={share:g}: trials are compared by held-out examples, never by the test split")
    return SearchSpec(
        root=store.uri,
        recipe=with_code(with_checksum(recipe)),
        fingerprint=dataset.fingerprint,
        manifest_digest=manifest_digest(store, dataset.folder),
        strategy=strategy,
        spaces=spaces,
        trials=trials,
        minutes=minutes,
    )


def search(store: Store, spec: SearchSpec, train: Train, reporter: Reporter) -> SearchResult:
    """Run the remaining trials; return the result of all trials.

    Raises:
        PodlineError: the training of the recipe's own values failed, or another trial failed for a reason other than
            its values; a new start continues the search.
    """
    document, started, ending = read_search(store, spec), time.monotonic(), ""
    before = sum(trial.seconds for trial in document.trials)
    while not ending and len(document.trials) < spec.trials:
        complete = document.complete
        best = {spec.metric: complete[0].value or 0.0} if complete else {}
        reporter.progress(len(document.trials), spec.trials, "trials", best)
        values = _values(document)
        took = before + time.monotonic() - started
        longest = max((trial.seconds for trial in document.trials), default=0.0)
        if values is None:
            ending = "all values of the space seem to have been tried"
        elif spec.minutes and document.trials and took + longest > 60 * spec.minutes:
            ending = f"the next trial, of up to {duration(longest)}, does not fit into {spec.minutes:g} minutes"
        else:
            trial = _tried(store, document, values, train)
            store.delete(completion_name(spec.folder, _STAGE))
            document = document.model_copy(update={"trials": (*document.trials, trial)})
            store.publish_json(f"{spec.folder}/{DOCUMENT}", document.model_dump(mode="json"), replace=True)
            reporter.log(f"trial {trial.number}: {_in_words(trial, spec.metric)}")
    verdict = judged(document)
    states = [trial.state for trial in document.trials]
    result = SearchResult(
        seconds=before + time.monotonic() - started,
        folder=spec.folder,
        page=f"{spec.folder}/{PAGE}",
        trials={state: states.count(state) for state in dict.fromkeys(states)},
        ending=ending,
        run=verdict.best.run,
        values=verdict.best.values,
        better=verdict.better,
        verdict=verdict.text,
    )
    # Imported here, since it needs matplotlib.
    from podline.search.page import page  # noqa: PLC0415

    store.publish_bytes(result.page, page(document, verdict, result.lines()[:1]).encode(), replace=True)
    record_files(store, spec.folder, _STAGE, [f"{spec.folder}/{DOCUMENT}", result.page])
    return result


def _values(document: SearchDocument) -> dict[str, Json] | None:
    """Return the values of the next trial, the recipe's own for the first trial; None if all seem to be tried."""
    spec = document.spec
    if document.trials:
        return next_values(spec.spaces, document.trials, spec.recipe.seed)
    own = flat(plain(spec.recipe))
    return {space.path: own.get(space.path) for space in spec.spaces}


def _tried(store: Store, document: SearchDocument, values: dict[str, Json], train: Train) -> Trial:
    spec, number, started = document.spec, len(document.trials), time.monotonic()
    found: dict[str, Any] = {"number": number, "values": values}
    try:
        recipe = registry.override(spec.recipe, values) if number else spec.recipe
        training = training_spec(store, recipe, spec.fingerprint, spec.strategy)
        pruning = Pruning(metric=spec.metric, limits=limits(document.trials))
        outcome = _outcome(training.model_copy(update={"pruning": pruning}), train)
    except (DivergenceError, SettingsError) as error:
        if not number:
            raise
        return Trial(**found, state="failed", cause=one_line(error), seconds=time.monotonic() - started)
    lines = MetricsLines(store.local(f"{training.folder}/{METRICS}")).rare()
    # Includes the process's start and the rehearsal. A run that exists already counts as if it were trained again.
    seconds = max(time.monotonic() - started, outcome.pop("trained", 0.0))
    return Trial(**found, run=training.run, seconds=seconds, **{**measured(lines, spec.metric), **outcome})


def _outcome(training: TrainSpec, train: Train) -> dict[str, Any]:
    try:
        result = train(training)
    except PrunedError as error:
        return {"state": "pruned", "cause": one_line(error), "value": None}
    return {"state": "complete", "trained": result.seconds}


def _in_words(trial: Trial, metric: str) -> str:
    values = ", ".join(f"{path}={value}" for path, value in trial.values.items())
    became = trial.cause or f"{metric} {trial.value:.4f}"
    return f"{values}: {became}, {trial.run or 'no run'}, {duration(trial.seconds)}"
