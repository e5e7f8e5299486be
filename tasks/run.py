"""A run of the pipeline: its folders, its ledger entry, its work before the first stage and after the last."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prefect.client.schemas.objects import FlowRun, State
from prefect.runtime import flow_run
from prefect.states import Cancelled

from podline.base.errors import PodlineError, PreemptedError
from podline.base.progress import Reporter
from podline.ledger.inventory.invalidation import forget
from podline.ledger.recording import Notes, recorded
from podline.recipes.own_code import with_code
from podline.recipes.settings import Recipe
from podline.report.nights_page import write_index
from podline.settings import machine as settings
from podline.settings.machine import Settings
from podline.settings.strategies import StrategyName
from podline.stages.base import Result, Spec
from podline.stages.from_recipe import training_spec, within
from podline.stages.specs import ConvertResult, TrainSpec
from podline.stages.supervision.starts import started_ahead
from podline.stages.table import PROMOTE, TRAIN, again_from, following, in_order, loaded, stage_of
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.tasks.credentials import bucket_credentials
from podline.tasks.forms import TrainingForm, read_form
from podline.tasks.nights import what_began
from podline.tasks.server import add_tags, run_once
from podline.tasks.shown import open_card, stage_listener
from podline.tasks.stages import StageTask, pace
from podline.tasks.stops import close_what_is_left


@dataclass(frozen=True)
class Night:
    """A run of the pipeline in progress; it records every stage, see :class:`podline.tasks.stages.StageNotes`.

    Attributes:
        form: the parameters of the run.
        recipe: the recipe to train.
        store: the store for all outputs.
        machine: the settings of this machine.
        notes: the notes for the ledger.
    """

    form: TrainingForm
    recipe: Recipe
    store: Store
    machine: Settings
    notes: Notes
    _until_over: contextlib.ExitStack

    @property
    def strategy(self) -> StrategyName:
        """The distribution strategy of the model, from the form or from the machine's settings."""
        return self.form.machine.strategy or self.machine.strategy

    @property
    def command(self) -> str:
        """Return the command that does the same on the command line."""
        return self.form.command(self.store.uri)

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        """Return each stage's seconds in this run, its seconds of work, and whether it was reused."""
        return {name: stage.model_dump() for name, stage in self.notes.entry.stages.items()}

    def asked(self, spec: Spec) -> None:
        """Record that a stage begins.

        If ``start_from`` asks to run it again, delete its completion record, once per flow run.
        """
        first, name, order = self.form.start_from, stage_of(spec).name, again_from()
        if first in order and name in order[order.index(first) :]:
            run_once(f"{name}-again", lambda: forget(spec))
        self.notes.asked(spec)

    def retried(self, stage: str, error: BaseException, delay: float) -> None:
        """Record that a stage is tried again."""
        self.notes.retried(stage, error, delay)

    def answered(self, spec: Spec, result: Result, seconds: float) -> None:
        """Record a stage's result; after a conversion, protect the data set from deletion until the run ends."""
        if isinstance(result, ConvertResult):
            self._until_over.enter_context(self.store.using([result.folder]))
        self.notes.answered(spec, result, seconds)

    def training(self, fingerprint: str) -> TrainSpec:
        """Return the spec for training on a data set, with a duration that fits into the requested minutes."""
        tell = Reporter(TRAIN.name, stage_listener(TRAIN.name)).log
        spec = training_spec(self.store, self.recipe, fingerprint, self.strategy, tell)
        return within(self.form.minutes, spec, self.store, pace, tell)

    def follow(self, after: str, run: str) -> None:
        """Run the installed stages after a stage, in the order of their names; a failure does not end the run.

        Args:
            after: name of the stage.
            run: name of the run.

        Raises:
            PreemptedError: the run is asked to end.
        """
        for stage in following(after):
            try:
                StageTask(stage)(stage.spec_of(self.store, run), self)
            except PreemptedError:
                raise
            except PodlineError as error:
                Reporter(stage.name, stage_listener(stage.name)).warn(f"the run goes on without this stage: {error}")


def described(form: TrainingForm) -> str:
    """Return the subject of a run: its recipe, and its data if they have another name."""
    recipe = form.training_recipe()
    return recipe.name if recipe.name == recipe.dataset else f"{recipe.name} on {recipe.dataset}"


def needless(later: FlowRun) -> State[Any]:
    """Return the final state of a night that the night ``later`` replaces."""
    return Cancelled(message=f"replaced by the later night that was due at {later.expected_start_time:%F %T} UTC")


@contextlib.contextmanager
def opened(given: Any) -> Iterator[Night]:
    """Yield a night; after the body, its ledger entry and, unless it was cancelled, the index of nights are written.

    Args:
        given: the form or its values.

    Raises:
        SettingsError: a value is invalid.
        CredentialsError: the block with the bucket's credentials cannot be read.
    """
    with bucket_credentials():
        form = read_form(TrainingForm, given)
        close_what_is_left()
        machine = settings.load()
        store = open_store(form.machine.root or machine.root)
        recipe = with_code(form.training_recipe())
        add_tags(recipe.name, recipe.dataset)
        reporter = Reporter("ledger", stage_listener("ledger"))
        with (
            index_afterwards(store),
            recorded(store, recipe.name, "flow", reporter, **_start()) as notes,
            contextlib.ExitStack() as until_over,
        ):
            night = Night(form, recipe, store, machine, notes, until_over)
            notes.planned(recipe, machine, night.strategy)
            for problem in loaded().problems:
                reporter.warn(f"the run goes on without a stage: {problem}")
            skipped = [] if form.promote else [PROMOTE, *following(PROMOTE.name)]
            chain = [stage for stage in in_order() if stage not in skipped]
            open_card(recipe.name, [stage.name for stage in chain])
            # A TPU belongs to one process, from the import of TensorFlow on.
            until_over.enter_context(started_ahead([] if machine.tpu or machine.launch else chain, store))
            yield night


def _start() -> dict[str, Any]:
    """Return the flow run's id and attempt, what began it, and its delay, which is 0 after the first attempt."""
    began, due = what_began(), flow_run.scheduled_start_time
    late = (datetime.now(UTC) - due).total_seconds() if due and began.attempt == 1 else 0.0
    return {"flow_run": str(flow_run.id or ""), "late": late, **began._asdict()}


@contextlib.contextmanager
def index_afterwards(store: Store) -> Iterator[None]:
    """Write the index of nights after the body; a cancelled run leaves this to the next run."""
    try:
        yield
    except Exception:
        _write_index(store)
        raise
    _write_index(store)


def _write_index(store: Store) -> None:
    try:
        write_index(store)
    except PodlineError as error:
        # The night itself is done, and has its report.
        Reporter("index", stage_listener("index")).warn(f"the index of nights is not up to date: {error}")
