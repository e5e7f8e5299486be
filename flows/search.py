"""A search for better recipe values: each trial is a separate task, and trials are compared on held-out examples.

    podline tune search sample --over schedule.learning_rate=log:0.01..1 --root podline-root

The deployment runs the same search; its verdict and the best values are an artifact of the run. Another run with the
same values resumes an interrupted search.
"""

from __future__ import annotations

import functools
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from podline.base.progress import Reporter
from podline.search.searching import search, search_spec
from podline.settings import machine as settings
from podline.store.opening import open_store
from podline.tasks.artifacts import publish_search
from podline.tasks.credentials import bucket_credentials
from podline.tasks.forms import SearchParameters, read_form
from podline.tasks.nights import run_name
from podline.tasks.shown import stage_listener
from podline.tasks.stops import close_tasks, close_what_is_left, one_line_failures
from podline.tasks.trainings import train_trial


@flow(
    name="search",
    flow_run_name=run_name(SearchParameters, lambda parameters: f"search {parameters.recipe}"),
    # The body checks the parameters, and reports a problem in one line.
    validate_parameters=False,
    on_crashed=[close_tasks],
)
@one_line_failures
@bucket_credentials()
def search_values(parameters: SearchParameters) -> dict[str, Any] | State[Any]:
    """Search for better values of a recipe; each trial is a run in the store.

    Args:
        parameters: The recipe, the values to search, and the number of trials.
    """
    form = read_form(SearchParameters, parameters)
    close_what_is_left()
    machine = settings.load()
    store = open_store(form.root or machine.root)
    reporter = Reporter("search", stage_listener("search"))
    spec = search_spec(
        store,
        form.choices.apply(form.named_recipe),
        form.over,
        reporter,
        strategy=machine.strategy,
        trials=form.trials,
        minutes=form.minutes,
    )
    found = search(store, spec, functools.partial(train_trial, store), reporter)
    publish_search(store, spec.recipe.name, found)
    return found.model_dump(mode="json")
