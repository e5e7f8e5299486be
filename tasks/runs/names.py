"""Names of Podline's deployments, runs and artifacts on a Prefect server."""

from __future__ import annotations

import re
from datetime import timedelta

TAG = "podline"
"""Deployments whose runs a person or a schedule starts: a crashed run restarts once, and failures are notified."""
TPU_TAG = "podline-tpu"
"""Deployments for TPUs, which exist only if the settings name a TPU."""
OUR_TAGS = (TAG, TPU_TAG)
SILENCE = timedelta(seconds=130)
"""The seconds without a heartbeat after which a run counts as gone: four missed ones; see ``settings.HEARTBEAT``."""


def key_of(recipe: str, kind: str) -> str:
    """Return the key of a recipe's artifacts of a kind, like ``coco-pose-report``: small letters, digits, dashes.

    Prefect's UI keeps a history per key, so every recipe has its own keys.
    """
    return f"{re.sub('[^a-z0-9]+', '-', recipe.lower())}-{kind}"


def recipe_of(folder: str) -> str:
    """Return the recipe in the name of a run's or search's folder: ``runs/<recipe>-<hash>``."""
    return folder.split("/")[1].rpartition("-")[0]
