"""Progress of a stage on the node: a label on its flow run, for the flow that waits for it.

A label can be read with the run's state in one call, and needs nothing but the server that both know anyway. It says
how far the stage is, and it changes every half minute even if the stage is no further: then the machine is alive.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from pydantic import Field

from podline.frozen import Frozen
from podline.progress import Event, Listener

LABEL = "podline.sign"
# Progress is told as it comes, but not faster than this, so that a server is not kept busy.
_EVERY = 2.0
_ALIVE = 30.0


class Sign(Frozen):
    """A sign of life: the how-manieth, and the stage's last progress event, empty before the first."""

    number: int
    progress: Event = Field(default_factory=dict)

    def labels(self) -> dict[str, Any]:
        """As a label of a flow run."""
        return {LABEL: self.model_dump_json()}


def read(labels: Mapping[str, Any]) -> Sign | None:
    """The sign on a flow run; None before its first."""
    text = labels.get(LABEL)
    return Sign.model_validate(json.loads(text)) if isinstance(text, str) else None


@contextlib.contextmanager
def telling(flow_run: UUID) -> Iterator[Listener]:
    """While the body runs, a thread tells the flow run's signs; the listener is to hear the stage's events."""
    latest: list[Event] = [{}]
    over = threading.Event()

    def hear(event: Event) -> None:
        if event["event"] == "progress":
            latest[0] = event

    def tell() -> None:
        number, told, said = 0, None, float("-inf")
        with get_client(sync_client=True) as client:
            while True:
                event, now = latest[0], time.monotonic()
                if event is not told or now - said >= _ALIVE:
                    # A server that is away for a moment must not cost the stage its work.
                    with contextlib.suppress(Exception):
                        client.update_flow_run_labels(flow_run, Sign(number=number, progress=event).labels())
                        number, told, said = number + 1, event, now
                if over.wait(_EVERY):
                    return

    thread = threading.Thread(target=tell, name="signs", daemon=True)
    thread.start()
    try:
        yield hear
    finally:
        over.set()
        thread.join()
