"""Builds the spec of a learning-rate search from options, for command, flow and notebook."""

from __future__ import annotations

import contextlib
from typing import Any

from podline.base.errors import ArtifactError, SettingsError, StoreError
from podline.base.progress import Reporter
from podline.documents.manifest import manifest_digest
from podline.ledger.inventory.catalogue import dataset_for, training_of
from podline.recipes.own_code import with_code
from podline.recipes.settings import CHAMPION, Recipe
from podline.stages.from_recipe import champion_run, fitted, settled, with_checksum
from podline.stages.options import Choices
from podline.stages.tools import LearningRateSpec
from podline.store.contract import Store
from podline.training.checkpoints import Checkpoint, CheckpointFolder


def learning_rate_spec(
    store: Store,
    recipe: Recipe,
    reporter: Reporter,
    *,
    run: str | None = None,
    fingerprint: str | None = None,
    choices: Choices | None = None,
    **values: Any,
) -> LearningRateSpec:
    """Return the spec of a search.

    Args:
        store: the store with the data set and the run.
        recipe: the recipe to search for; if ``run`` is given, the run's recipe is used instead.
        reporter: reports which of several data sets is used.
        run: the run from whose newest checkpoint the search begins.
        fingerprint: the start of the data set's fingerprint; by default that of the run, or else the newest.
        choices: changes to the recipe.
        **values: values of ``low``, ``high``, ``steps`` and ``strategy`` that differ from the defaults.

    Raises:
        StoreError: the data set, the run, or a checkpoint of the run does not exist.
        SettingsError: the run's data set is not that of ``recipe`` and ``fingerprint``, or a value is invalid.
    """
    begins: dict[str, Any] = {}
    trained_on = ""
    if run:
        training, checkpoint = training_of(store, run, recipe), _newest_checkpoint(store, run)
        recipe, trained_on = training.recipe, training.fingerprint
        begins = {"run": run, "checkpoint_step": checkpoint.step, "checkpoint_sha256": checkpoint.sha256}
    recipe = settled(store, (choices or Choices()).apply(recipe))
    dataset = dataset_for(store, recipe, fingerprint or trained_on, reporter)
    if trained_on not in ("", dataset.fingerprint):
        raise SettingsError(
            f"got fingerprint={fingerprint}, but run {run} was trained on the data set {trained_on}; leave it out"
        )
    if recipe.further == CHAMPION:
        recipe = recipe.changed(further=champion_run(store, recipe, dataset.folder) or None)
    return LearningRateSpec(
        root=store.uri,
        recipe=with_code(with_checksum(fitted(store, recipe, dataset.folder))),
        fingerprint=dataset.fingerprint,
        manifest_digest=manifest_digest(store, dataset.folder),
        **begins,
        **values,
    )


def _newest_checkpoint(store: Store, name: str) -> Checkpoint:
    """Return a run's newest checkpoint whose files exist with their recorded sizes, without deleting any file."""
    training = training_of(store, name)
    folder = CheckpointFolder(store, training.folder, training.digest())
    for step in folder.steps():
        with contextlib.suppress(ArtifactError, StoreError):
            return folder.describe(step)
    raise StoreError(f"{store.where(folder.folder)} has no complete checkpoint; `podline train` writes checkpoints")
