"""Orders events causally for a Prefect server's automations; the server loads this module by its setting.

A state change of a run is an event that refers to the previous one, if that is less than five minutes old. Automations
receive it after the previous one, and Prefect waits a quarter of an hour for an event that does not arrive. The event
never arrives if a schedule created the run, because that is not an event, or if the server was restarted in between,
because the order is kept in memory. A run that crashes soon afterwards would restart with this delay. Each of our
automations uses single events (:mod:`podline.deployments.automations`), so their order does not matter.
"""

from __future__ import annotations

from prefect.server.events.ordering import EventArrivedEarly, memory
from prefect.server.events.schemas.events import ReceivedEvent


class CausalOrdering(memory.CausalOrdering):
    """Prefect's order, but an event waits for an earlier event only while the server processes that event."""

    async def wait_for_leader(self, event: ReceivedEvent) -> None:
        """Return when automations may receive an event."""
        try:
            await super().wait_for_leader(event)
        except EventArrivedEarly:
            await self.forget_follower(event)
