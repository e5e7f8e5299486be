"""From raw archive to report: the stages that every training flow runs, in order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled

from podline import settings
from podline.errors import SanityError
from podline.ledger.recording import recorded
from podline.progress import Reporter
from podline.recipes.own_code import with_code
from podline.recipes.settings import Recipe
from podline.settings import Settings
from podline.stages.completed import manifest_sha256
from podline.stages.from_recipe import evaluation_spec, pace_spec, training_spec
from podline.stages.specs import ConvertResult, ReportSpec, ValidateSpec
from podline.store.contract import Store
from podline.store.in_use import using
from podline.store.opening import open_store
from podline.strategies import StrategyName
from podline.tasks.failures import explained
from podline.tasks.form_rules import not_shown
from podline.tasks.forms import read_form
from podline.tasks.leftover_tasks import close_what_is_left
from podline.tasks.more_seeds import decided
from podline.tasks.nights_index import index_afterwards
from podline.tasks.outcome import TimeSheet, publish_artifacts, summary, unchanged_since
from podline.tasks.parameters import TrainingParameters
from podline.tasks.promoting import promotion_of, tell_verdict
from podline.tasks.runs.bucket_credentials import bucket_credentials
from podline.tasks.runs.nights import later_night, what_began
from podline.tasks.runs.progress_cards import deal_cards
from podline.tasks.runs.run_log import stage_listener
from podline.tasks.runs.this_run import add_tags
from podline.tasks.sources import conversion_of
from podline.tasks.stages import convert, evaluate, pace, promote, report, train, validate

_UNCHANGED = "unchanged"
_IN_ORDER = [each.stage.name for each in (convert, validate, train, evaluate, promote, report)]


def described(parameters: TrainingParameters) -> str:
    """What a run is about: its recipe, and its data if they have another name."""
    recipe = parameters.training_recipe()
    return recipe.name if recipe.name == recipe.dataset else f"{recipe.name} on {recipe.dataset}"


@explained
@bucket_credentials()
def from_archive_to_report(form: type[TrainingParameters], given: Any) -> dict[str, Any] | State[Any]:
    """Convert, validate, train, evaluate, report; and an entry in the ledger, however it ends.

    Args:
        form: the flow's own.
        given: what to train, on which data, and where it goes.

    Returns:
        See :func:`podline.tasks.outcome.summary`; a night that a later one makes needless is Cancelled.
    """
    parameters = read_form(form, given)
    old = not_shown(form, given)
    if old:
        written = ", ".join(f"{name}={value!r}" for name, value in old.items())
        get_run_logger().info("saved before the form had groups, and not shown in it: %s", written)
    close_what_is_left()
    night = later_night()
    if night is not None:
        return Cancelled(
            message=f"needless: the night that was due at {night.expected_start_time:%F %T} UTC stands for it"
        )
    machine = settings.load()
    store = open_store(parameters.machine.root or machine.root)
    recipe = with_code(parameters.training_recipe())
    strategy = parameters.machine.strategy or machine.strategy
    add_tags(recipe.name, recipe.dataset)
    reporter = Reporter("ledger", stage_listener("ledger"))
    with index_afterwards(parameters), recorded(store, recipe.name, "flow", reporter, **_attempt()) as notes:
        notes.planned(recipe, machine, strategy)
        deal_cards(recipe.name, [stage for stage in _IN_ORDER if stage != "promote" or parameters.promote])
        times = TimeSheet(notes, parameters.start_from)
        return _stages(parameters, recipe, store, strategy, machine, times)


def _attempt() -> dict[str, Any]:
    """Which attempt of which flow run this is, what began it, and how late; a retry was due at no known moment."""
    began, due = what_began(), flow_run.scheduled_start_time
    late = (datetime.now(UTC) - due).total_seconds() if due and began.attempt == 1 else 0.0
    return {"flow_run": str(flow_run.id or ""), "late": late, **began._asdict()}


def _stages(
    parameters: TrainingParameters,
    recipe: Recipe,
    store: Store,
    strategy: StrategyName,
    machine: Settings,
    times: TimeSheet,
) -> dict[str, Any]:
    converted = times.run(convert, conversion_of(parameters, store, machine))
    with using(store, [converted.folder]):  # between the stages as well
        return _learned(parameters, recipe, store, strategy, converted, times)


def _learned(
    parameters: TrainingParameters,
    recipe: Recipe,
    store: Store,
    strategy: StrategyName,
    converted: ConvertResult,
    times: TimeSheet,
) -> dict[str, Any]:
    """All that comes after the conversion."""
    times.run(
        validate,
        ValidateSpec(
            root=store.uri,
            dataset=recipe.dataset,
            fingerprint=converted.fingerprint,
            manifest_sha256=manifest_sha256(store, converted.folder),
        ),
    )
    tell = Reporter("train", stage_listener("train")).log
    training = training_spec(store, recipe, converted.fingerprint, strategy, tell)
    if parameters.minutes:
        recipe = pace(pace_spec(training, parameters.minutes)).of(training.recipe)
        training = training.model_copy(update={"recipe": recipe})
    trained = times.run(train, training)
    evaluated = times.run(evaluate, evaluation_spec(training, trained))
    promoted = None
    if parameters.promote and not evaluated.failure:
        asked, seconds = promotion_of(training, trained, evaluated), trained.seconds + evaluated.seconds
        promoted = decided(store, times, asked, times.run(promote, asked), strategy, seconds)
    reported = times.run(
        report,
        ReportSpec(
            root=store.uri,
            run=trained.run,
            dataset=recipe.dataset,
            fingerprint=converted.fingerprint,
            evaluation_sha256=evaluated.evaluation_sha256,
            promotion_sha256=promoted.promotion_sha256 if promoted else "",
            command=parameters.command(store.uri),
        ),
    )
    unchanged = unchanged_since(store, times, trained)
    if unchanged:
        get_run_logger().info("unchanged since %s", unchanged)
        add_tags(_UNCHANGED)
    tell_verdict(promoted)
    publish_artifacts(store, recipe.name, times, converted, trained, evaluated, reported, promoted, unchanged)
    if evaluated.failure:
        raise SanityError(f"{evaluated.failure}; the report: {store.where(reported.html)}")
    return summary(store, times, evaluated, reported, promoted, unchanged)
