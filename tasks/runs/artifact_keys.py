"""Keys of artifacts; Prefect's UI keeps a history for each, so every recipe has its own."""

from __future__ import annotations

import re


def key_of(recipe: str, kind: str) -> str:
    """The key of a recipe's artifacts of a kind, like ``coco-pose-report``: small letters, figures, dashes."""
    return f"{re.sub('[^a-z0-9]+', '-', recipe.lower())}-{kind}"


def recipe_of(folder: str) -> str:
    """The recipe that a run, or a search, is of, by its folder in the store: ``runs/<recipe>-<hash>``."""
    return folder.split("/")[1].rpartition("-")[0]
