"""An event whose leader never comes is heard of at once, which Prefect's own order puts off."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from prefect.server.events.ordering import CausalOrdering, EventArrivedEarly, memory
from prefect.server.events.schemas.events import ReceivedEvent

from podline.deployments import event_order


def told(order: type[CausalOrdering], *events: ReceivedEvent) -> list[uuid.UUID]:
    """What automations hear of, in order."""
    heard = []

    async def hear(event: ReceivedEvent, depth: int = 0) -> None:
        async with ordering.preceding_event_confirmed(hear, event, depth):
            heard.append(event.id)

    async def hear_all() -> None:
        for event in events:
            await hear(event)
        assert await ordering.get_lost_followers() == []

    memory.CausalOrdering.clear_all_scopes()
    ordering = order(scope="a test")
    asyncio.run(hear_all())
    return heard


def event(**more: Any) -> ReceivedEvent:
    resource = {"prefect.resource.id": f"prefect.flow-run.{uuid.uuid4()}"}
    given = {"occurred": "2026-01-01T00:00:00Z", "event": "prefect.flow-run.Crashed", "resource": resource}
    return ReceivedEvent.model_validate({"id": uuid.uuid4(), **given, **more})


def test_an_event_does_not_wait_for_one_that_never_comes_and_is_heard_of_once() -> None:
    crashed = event(follows=uuid.uuid4())
    begun_again = event(follows=crashed.id)
    for order in ([crashed, begun_again], [begun_again, crashed]):
        assert told(event_order.CausalOrdering, *order) == [each.id for each in order]
    with pytest.raises(EventArrivedEarly):
        told(memory.CausalOrdering, crashed)
