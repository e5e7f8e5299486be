"""Names on a Prefect server by which Podline's deployments, runs and artifacts are found."""

from __future__ import annotations

import re
from datetime import timedelta

TAG = "podline"
"""Deployments whose runs a person or a schedule starts: a crashed run begins again once, and failures are notified."""
TPU_TAG = "podline-tpu"
"""Deployments for TPUs, which are made only where the settings name one."""
OUR_TAGS = (TAG, TPU_TAG)
SILENCE = timedelta(seconds=130)
"""A run of ours without a heartbeat for so long is gone: it has missed four; see ``settings.HEARTBEAT``."""


def key_of(recipe: str, kind: str) -> str:
    """Return the key of a recipe's artifacts of a kind, like ``coco-pose-report``: small letters, figures, dashes.

    Prefect's UI keeps a history for each key, so every recipe has its own.
    """
    return f"{re.sub('[^a-z0-9]+', '-', recipe.lower())}-{kind}"


def recipe_of(folder: str) -> str:
    """Return the recipe of a run or a search, by its folder in the store: ``runs/<recipe>-<hash>``."""
    return folder.split("/")[1].rpartition("-")[0]
