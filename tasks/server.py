"""Podline on a Prefect server: its names, errors of requests, and what a flow run keeps there (tags, labels)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import PrefectHTTPStatusError
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL

from podline.base.errors import PodlineError, ServerAwayError, SettingsError

TAG = "podline"
"""Deployments whose runs a person or a schedule starts: a crashed run restarts once, and failures are notified."""
TPU_TAG = "podline-tpu"
"""Deployments for TPUs, which exist only if the settings name a TPU."""
OUR_TAGS = (TAG, TPU_TAG)
SILENCE = timedelta(seconds=130)
"""The time without a heartbeat after which a run counts as crashed: four heartbeats (settings/environment.py)."""


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


def require_named() -> None:
    """Check that a server is named; otherwise Prefect would start its own, empty server.

    Raises:
        SettingsError: no server is named.
    """
    if not PREFECT_API_URL.value():
        raise SettingsError(
            "no Prefect server is named; set PREFECT_API_URL to its address, such as http://127.0.0.1:4200/api"
        )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn errors of Prefect's client in the body into Podline's errors.

    Raises:
        SettingsError: the server asks for another secret.
        ServerAwayError: the server does not answer.
        PodlineError: the server refuses the request.
    """
    url = PREFECT_API_URL.value()
    try:
        yield
    except httpx.TransportError as error:
        raise ServerAwayError(f"the Prefect server {url} does not answer ({error})") from error
    except RuntimeError as error:
        # The engine raises this error at the start of a flow run.
        if not isinstance(error.__cause__, httpx.TransportError):
            raise
        raise ServerAwayError(f"the Prefect server {url} does not answer ({error.__cause__})") from error
    except PrefectHTTPStatusError as error:
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            given = "has another value" if PREFECT_API_AUTH_STRING.value() else "is not set"
            raise SettingsError(
                f"the Prefect server {url} asks for a secret: PREFECT_API_AUTH_STRING {given}; "
                "set it to the server's PREFECT_SERVER_API_AUTH_STRING, or to that in the file that `podline up` names"
            ) from error
        raise PodlineError(f"the Prefect server {url} refuses: {error}") from error
