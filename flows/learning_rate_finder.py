"""The learning-rate finder: raises the rate with each step, and suggests a rate from the loss.

    podline tune lr sample --root podline-root

The deployment runs the same search. Its chart is an image artifact of the run, and the suggestion is the run's answer.
No training run is changed, and the result of a completed search is reused.
"""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from podline.base.progress import Reporter, terminal
from podline.settings import machine as settings
from podline.stages.table import LR_FIND
from podline.store.opening import open_store
from podline.tasks.artifacts import publish_chart
from podline.tasks.credentials import bucket_credentials
from podline.tasks.forms import FinderParameters, read_form
from podline.tasks.nights import run_name
from podline.tasks.shown import open_card
from podline.tasks.stages import find_learning_rate
from podline.tasks.stops import close_tasks, close_what_is_left, one_line_failures
from podline.training.searches import learning_rate_spec


@flow(
    name="learning-rate-finder",
    flow_run_name=run_name(FinderParameters, lambda parameters: f"lr-find {parameters.recipe}"),
    # The body checks the parameters, and reports a problem in one line.
    validate_parameters=False,
    on_crashed=[close_tasks],
)
@one_line_failures
@bucket_credentials()
def learning_rate_finder(parameters: FinderParameters) -> dict[str, Any] | State[Any]:
    """Suggest a learning rate for a recipe, with reasons and a chart.

    Args:
        parameters: The recipe, and the range of rates.
    """
    form = read_form(FinderParameters, parameters)
    close_what_is_left()
    machine = settings.load()
    store = open_store(form.root or machine.root)
    spec = learning_rate_spec(
        store,
        form.named_recipe,
        Reporter(LR_FIND.name, terminal()),
        run=form.run,
        choices=form.choices,
        low=form.low,
        high=form.high,
        steps=form.steps,
        strategy=machine.strategy,
    )
    open_card(spec.recipe.name, [LR_FIND.name])
    found = find_learning_rate(spec)
    publish_chart(store, spec.recipe.name, found)
    return found.model_dump(mode="json")
