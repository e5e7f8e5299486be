"""Turns a user's request for a stage into a spec, and runs the stage with an entry in the ledger."""

from __future__ import annotations

import re
import time
from typing import Any, NamedTuple, Protocol, TypeVar

from podline.base.errors import SettingsError, StoreError
from podline.base.progress import Listener, Reporter
from podline.ledger import ledger
from podline.ledger.inventory.catalogue import datasets as catalogued
from podline.ledger.inventory.catalogue import train_result, training_of
from podline.ledger.recording import recorded
from podline.recipes import datasets, registry
from podline.recipes.settings import Recipe
from podline.settings.machine import Settings, cluster
from podline.stages.base import JUDGED, Result, Spec
from podline.stages.from_recipe import evaluation_spec
from podline.stages.options import Choices
from podline.stages.specs import EvaluateSpec, TrainResult, TrainSpec
from podline.stages.supervision.running import perform
from podline.stages.table import EVALUATE, TRAIN, Stage, stage_of
from podline.store.contract import Store
from podline.store.opening import open_store

R = TypeVar("R", bound=Result)


class Performer(Protocol):
    """The type of functions that run a stage."""

    def __call__(self, spec: Spec[R], listener: Listener, machine: Settings, /) -> R:
        """Return the stage's result."""
        ...


# A run's name: the recipe's name, a hyphen and twelve hexadecimal digits of a hash.
_RUN = re.compile(r"[a-z0-9][a-z0-9_.-]*-[0-9a-f]{12}")


def recipe_of(name: str | None) -> Recipe:
    """Return the recipe with this name.

    Raises:
        SettingsError: the recipe does not exist, or no name was given.
    """
    if name is None:
        raise SettingsError(
            f"no recipe is given; give one of {', '.join(registry.names())}, a Python file, or --spec FILE"
        )
    return registry.get(name)


class Request(NamedTuple):
    """A user's request: name of a recipe, run or data set, store, settings, and a listener for progress."""

    name: str | None
    store: Store
    settings: Settings
    listener: Listener

    @property
    def dataset_name(self) -> str:
        """Return the name of the requested data set, or of the recipe's data set."""
        return self.dataset_itself or self.recipe.dataset

    @property
    def dataset_itself(self) -> str | None:
        """Return the given name if it is the name of a data set but of no recipe; else None.

        A data set in the store counts even if the package that defines it is not installed.
        """
        name = self.name
        if name is None or registry.has(name):
            return None
        stored = datasets.known(name) is not None or name in {dataset.name for dataset in catalogued(self.store)}
        return name if stored else None

    @property
    def trained(self) -> TrainSpec | None:
        """Return the training spec if the name is a run's, else None."""
        name = self.name or ""
        return training_of(self.store, name) if _RUN.fullmatch(name) and not registry.has(name) else None

    @property
    def recipe(self) -> Recipe:
        """Return the recipe with which the named run was trained; for a recipe's name, that recipe."""
        trained = self.trained
        return trained.recipe if trained else recipe_of(self.name)

    def wanted(self, fingerprint: str | None) -> str | None:
        """Return ``fingerprint`` if given, else the fingerprint of the named run's data, else None."""
        trained = self.trained
        return fingerprint or (trained.fingerprint if trained else None)

    def reporter(self, stage: Stage[Any, Any]) -> Reporter:
        """Return a reporter for a stage."""
        return Reporter(stage.name, self.listener)

    def train(self, spec: TrainSpec) -> TrainResult:
        """Train a model and return the result; write a ledger entry unless an earlier result is reused."""
        return performed(spec, self.listener, self.settings, evaluated=False)


def performed(
    spec: Spec[R], listener: Listener, settings: Settings, by: Performer = perform, *, evaluated: bool = True
) -> R:
    """Run a stage and return its result.

    A run's training and evaluation share one ledger entry. It is written when the evaluation has ended, or when either
    stage has failed; with ``evaluated=False``, when the training has ended.
    """
    stage, store = stage_of(spec), open_store(spec.root)
    beside = by is perform and spec.by_workers and cluster().place
    training = None if beside else _training_of(spec, store)
    if training is None:
        result = by(spec, listener, settings)
        result.require_sane()
        return result
    with recorded(store, training.recipe.name, "commands", Reporter("ledger", listener)) as notes:
        notes.planned(training.recipe, settings, spec.model_strategy or training.strategy)
        notes.asked(training)
        if stage is EVALUATE:
            trained = train_result(store, training.run)
            notes.answered(training, trained.model_copy(update={"reused": True}), 0.0)
        started = time.monotonic()
        result = by(spec, listener, settings)
        notes.answered(spec, result, time.monotonic() - started)
        result.require_sane()
        # A finished evaluation has its entry, unless its command was killed before writing it.
        follows = stage is TRAIN and evaluated
        notes.dropped = follows or (result.reused and (not evaluated or _is_recorded(store, training)))
    return result


def _is_recorded(store: Store, training: TrainSpec) -> bool:
    """Return whether the ledger has an entry of a finished run with this training; the newest are searched first."""
    finished = ledger.names(store, recipe=training.recipe.name, state="finished")
    return any(entry.run == training.run for entry in ledger.entries(store, finished, damaged=lambda _: None))


def _training_of(spec: Any, store: Store) -> TrainSpec | None:
    """Return the training whose ledger entry this command writes, or None."""
    stage = stage_of(spec)
    if stage is TRAIN:
        return spec
    return training_of(store, spec.run) if stage is EVALUATE and spec.split == JUDGED else None


def evaluate_spec(request: Request, split: str, assignments: tuple[str, ...] = ()) -> EvaluateSpec:
    """Return the evaluation spec of the named run, or of the recipe's newest finished run.

    Raises:
        StoreError: there is no such finished run.
        SettingsError: an assignment changes a setting on which the trained model depends.
    """
    stored = request.trained or training_of(request.store, _newest_run(request.store, request.recipe.name))
    recipe = Choices(assignments=assignments).apply(stored.recipe)
    training = stored.model_copy(update={"recipe": recipe, "strategy": request.settings.strategy})
    if training.run != stored.run:
        raise SettingsError(
            f"--set {' '.join(assignments)} would change the trained model of {stored.run}; an evaluation accepts only "
            f"settings of the evaluation; to train with these settings: `podline train {stored.run} --set …`"
        )
    trained = TRAIN.find(training, request.reporter(TRAIN))
    if trained is None:
        raise StoreError(f"{stored.root}: {stored.run} is not trained; run `podline train {stored.run}` first")
    return evaluation_spec(training, trained, split)


def _newest_run(store: Store, recipe: str) -> str:
    record = re.compile(rf"runs/({re.escape(recipe)}-[0-9a-f]{{12}})/stages/train\.json")
    found = [(each.published, match[1]) for each in store.listing("runs") if (match := record.fullmatch(each.name))]
    if not found:
        raise StoreError(f"{store.uri} has no finished run of {recipe}; run `podline train {recipe}` first")
    return max(found)[1]
