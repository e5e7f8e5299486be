"""What a flow run keeps about itself on the server: tags to find it by, and what it has done once."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run


def add_tags(*tags: str) -> None:
    """Puts tags on the flow run that is running, beside those that it has."""
    run = UUID(flow_run.id)
    with get_client(sync_client=True) as client:
        client.update_flow_run(run, tags={*client.read_flow_run(run).tags, *tags})


def once(deed: str, do: Callable[[], object]) -> None:
    """Does something for the flow run that is running, unless an earlier start of the same run, before a retry, did.

    It is noted on the server, so a retry on another machine knows of it. A start that is killed between the deed and
    the note has it done again.

    Args:
        deed: its name.
        do: does it.
    """
    run, label = UUID(flow_run.id), f"podline.{deed}"
    with get_client(sync_client=True) as client:
        if label in client.read_flow_run(run).labels:
            return
        do()
        client.update_flow_run_labels(run, {label: True})
