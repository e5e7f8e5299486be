"""The input tools and the learning-rate finder as calls for a notebook; each works in the notebook's own process.

    >>> from podline import notebook
    >>> notebook.benchmark_input("cifar10", "podline-root")

A recipe is a name, or a :class:`~podline.recipes.settings.Recipe` with values of your own, see
:func:`podline.recipes.registry.override`. The command line does the same in a process of its own. What needs a model
sets the process's random seeds and starts a new Keras session, as training does: models of the notebook's own stay what
they are.
"""

from __future__ import annotations

from podline.catalogue import choose_dataset
from podline.progress import Reporter, silent
from podline.recipes import registry
from podline.recipes.settings import Recipe
from podline.storage import open_store
from podline.tool_stages import INPUT_SPEED, InputSpeed, InputSpeedSpec


def benchmark_input(
    recipe: str | Recipe, root: str, *, fingerprint: str | None = None, seconds: float = 0.5
) -> InputSpeed:
    """How fast a recipe's input is, stage by stage, and whether it feeds the model; see ``podline benchmark input``.

    Args:
        recipe: a recipe or its name.
        root: the store.
        fingerprint: which data set, by the start of its fingerprint; the newest by default.
        seconds: for which each stage is measured.

    Returns:
        The figures; a notebook shows them as a table, ``table()`` is one of pandas.

    Raises:
        StoreError: there is no such data set.
        SettingsError: there is no such recipe, or it does not fit the data set.
    """
    recipe, reporter = _recipe(recipe), silent(INPUT_SPEED.name)
    found = _fingerprint(recipe, root, fingerprint, reporter)
    return INPUT_SPEED.run(InputSpeedSpec(root=root, recipe=recipe, fingerprint=found, seconds=seconds), reporter)


def _recipe(recipe: str | Recipe) -> Recipe:
    return registry.get(recipe) if isinstance(recipe, str) else recipe


def _fingerprint(recipe: Recipe, root: str, start: str | None, reporter: Reporter) -> str:
    return choose_dataset(open_store(root), recipe.dataset, start, reporter).fingerprint
