"""Which flow run holds the lease on the TPU: a label on it, since the server tells nobody."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.runtime import flow_run

_LABEL = "podline.lease"
_HAS, _HAD = "has it", "had it"


@contextlib.contextmanager
def known_as_holder() -> Iterator[None]:
    """While the body runs, this flow run is known to have the lease."""
    run = flow_run.id
    if run is None:  # a task that is called by itself
        yield
        return
    _put(UUID(run), _HAS)
    try:
        yield
    finally:
        _put(UUID(run), _HAD)


def holders(runs: Iterable[FlowRun]) -> list[FlowRun]:
    """Those of some living flow runs that have the lease, or that could not say that they gave it back."""
    return [run for run in runs if run.labels.get(_LABEL) == _HAS]


def _put(run: UUID, value: str) -> None:
    # A server that is away for a moment must not cost the stage its work.
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        client.update_flow_run_labels(run, {_LABEL: value})
