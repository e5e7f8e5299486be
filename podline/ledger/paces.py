"""Reads the speed of each stage in earlier runs from the ledger."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

from podline.base.frozen import JsonObject
from podline.documents.ledger_entry import Entry, Environment, Training
from podline.ledger import ledger
from podline.ledger.alike import same_but_for_seed
from podline.ledger.slowness import MOST, MachinePace, growth, slowness
from podline.stages.specs import TrainResult
from podline.store.contract import Store

_TRAIN = "train"
_LONG_AGO = 60 * 86_400.0
# Largest number of entries of a recipe to read, which takes a second or two in a bucket.
_READ = 5 * MOST


def paces_of(entry: Entry) -> dict[str, MachinePace]:
    """Return stage → pace; a stage that was reused has none, except for a training, which keeps its own."""
    found, where = {}, entry.environment
    if entry.training is not None and entry.training.examples_per_second > 0:
        found[_TRAIN] = trained_at(entry.training, where)
    counts = {"evaluate": entry.outcome.examples if entry.outcome else 0}
    records = sum(split.records for split in entry.data.splits.values()) if entry.data else 0
    counts |= {"convert": records, "validate": records}
    for stage, count in counts.items():
        took = entry.stages.get(stage)
        if took is not None and not took.reused and count:
            devices = where.devices if stage == "evaluate" else ""
            found[stage] = MachinePace(took.seconds_when_made / count, 0.0, devices, "", where.cores, where.machine)
    return found


def trained_at(training: Training | TrainResult, where: Environment) -> MachinePace:
    """Return the pace of a training in an environment."""
    return MachinePace(
        1 / training.examples_per_second,
        training.waiting_for_input,
        where.devices,
        where.strategy,
        where.cores,
        where.machine,
        training.traces,
        training.load,
    )


def slow_training(store: Store, recipe: str, settings: JsonObject, now: MachinePace, until: float) -> str:
    """Describe how much slower a training is than the latest runs, or the latest runs than runs two months before.

    The text is empty if neither is significantly slower.

    Args:
        store: the store.
        recipe: name of the recipe.
        settings: the recipe's settings, in the ledger's form.
        now: the training's pace.
        until: Unix time at which the training ended.

    Raises:
        StoreError: the ledger cannot be read.
    """
    before = earlier(store, recipe, settings, until, now)
    if found := slowness(now, before):
        return found
    past = earlier(store, recipe, settings, until - _LONG_AGO, now)
    return growth([*before, now], [pace for pace in past if pace not in before])


def earlier(
    store: Store, recipe: str, settings: JsonObject, until: float, but: MachinePace | None = None
) -> list[MachinePace]:
    """Return the paces of the latest trainings of a recipe with equal settings except the seed, oldest first.

    A finished training counts even if a later stage failed. Damaged entries are skipped.

    Args:
        store: the store.
        recipe: name of the recipe.
        settings: the recipe's settings, in the ledger's form.
        until: Unix time; later runs are ignored.
        but: the pace of the current run, which is left out.

    Raises:
        StoreError: the ledger cannot be read.
    """
    wanted = itertools.islice(ledger.names(store, recipe=recipe, until=datetime.fromtimestamp(until, UTC)), _READ)
    found: list[MachinePace] = []
    for entry in ledger.entries(store, wanted, damaged=lambda _: None):
        pace = paces_of(entry).get(_TRAIN) if same_but_for_seed(entry.settings.get("recipe", {}), settings) else None
        # A run that reused a finished training repeats its pace.
        if pace and pace not in (*found, but):
            found.append(pace)
        if len(found) == MOST:
            break
    return found[::-1]
