"""State of a flow run on the server: tags to find it by, and labels for what is done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State, StateType
from prefect.runtime import flow_run


def add_tags(*tags: str) -> None:
    """Put tags on the flow run that is running, beside those that it has."""
    run = UUID(flow_run.id)
    with get_client(sync_client=True) as client:
        client.update_flow_run(run, tags={*client.read_flow_run(run).tags, *tags})


def states_of(client: SyncPrefectClient, run: UUID) -> list[State]:
    """Return the states that a flow run has had, the earliest first."""
    return sorted(client.read_flow_run_states(run), key=lambda state: state.timestamp)


def starts(states: Sequence[State]) -> int:
    """Return how often a flow run of these states has begun; its server's own count leaves out planned stops."""
    before = [None, *(state.type for state in states)]
    return sum(state.is_running() and was != StateType.RUNNING for was, state in zip(before, states, strict=False))


def run_once(name: str, do: Callable[[], object]) -> None:
    """Do something for the flow run that is running, unless an earlier start of the same run, before a retry, did.

    It is noted on the server, so a retry on another machine knows of it. A start that is killed before the note
    does it again.

    Args:
        name: of what is done.
        do: does it.
    """
    run, label = UUID(flow_run.id), f"podline.{name}"
    with get_client(sync_client=True) as client:
        if label in client.read_flow_run(run).labels:
            return
        do()
        client.update_flow_run_labels(run, {label: True})
