"""From what a person asks for to the spec of a search for a learning rate: one way for command, flow and notebook."""

from __future__ import annotations

from typing import Any

from podline.catalogue import dataset_for, newest_checkpoint, training_of
from podline.data.manifest import manifest_digest
from podline.progress import Reporter
from podline.recipes.choices import Choices
from podline.recipes.settings import Recipe
from podline.storage import Store
from podline.tool_stages import LearningRateSpec


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
    """The spec of a search.

    Args:
        store: the store.
        recipe: what to search for; with a run, the run's own recipe takes its place.
        reporter: is told which data set is taken if there are several.
        run: a run whose newest checkpoint the search begins from.
        fingerprint: which data set, by the start of its fingerprint; that of the run, or the newest, by default.
        choices: changes to the recipe.
        **values: ``low``, ``high``, ``steps`` and ``strategy``, where they are not the usual ones.

    Raises:
        StoreError: there is no such data set, no such run, or no checkpoint of it.
        SettingsError: the run is of another data set, or a value that cannot be.
    """
    begins: dict[str, Any] = {}
    if run:
        training, checkpoint = training_of(store, run, recipe), newest_checkpoint(store, run)
        recipe, fingerprint = training.recipe, training.fingerprint
        begins = {"run": run, "checkpoint_step": checkpoint.step, "checkpoint_sha256": checkpoint.sha256}
    recipe = (choices or Choices()).apply(recipe)
    dataset = dataset_for(store, recipe, fingerprint, reporter)
    return LearningRateSpec(
        root=store.uri,
        recipe=recipe,
        fingerprint=dataset.fingerprint,
        manifest_digest=manifest_digest(store, dataset.folder),
        **begins,
        **values,
    )
