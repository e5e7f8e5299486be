"""Names of Podline on a Prefect server, and what a flow run keeps there: tags, and labels for actions done once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State, StateType
from prefect.runtime import flow_run

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


def add_tags(*tags: str) -> None:
    """Add tags to the current flow run."""
    run = UUID(flow_run.id)
    with get_client(sync_client=True) as client:
        client.update_flow_run(run, tags={*client.read_flow_run(run).tags, *tags})


def states_of(client: SyncPrefectClient, run: UUID) -> list[State]:
    """Return a flow run's states, earliest first."""
    return sorted(client.read_flow_run_states(run), key=lambda state: state.timestamp)


def starts(states: Sequence[State]) -> int:
    """Return how often a flow run with these states has started; the server's own count omits planned stops."""
    before = [None, *(state.type for state in states)]
    return sum(state.is_running() and was != StateType.RUNNING for was, state in zip(before, states, strict=False))


def run_once(name: str, do: Callable[[], object]) -> None:
    """Run an action for the current flow run, unless an earlier start of the same run, before a retry, did.

    A label on the server records it, so a retry on another machine knows. A start that is killed before the label is
    written repeats the action.

    Args:
        name: name of the action.
        do: the action.
    """
    run, label = UUID(flow_run.id), f"podline.{name}"
    with get_client(sync_client=True) as client:
        if label in client.read_flow_run(run).labels:
            return
        do()
        client.update_flow_run_labels(run, {label: True})
