"""Causal order of events for a Prefect server's automations; the server loads it by its setting.

A change of a run's state is an event that names the one before it, if that was less than five minutes ago, and
automations hear of it after that one. Prefect waits a quarter of an hour for one that does not come. It never comes
where a schedule made the run, which is no event, and where the server was restarted in between, since what was heard is
kept in memory. A run that crashes soon afterwards would begin again that much later. Each of our automations looks at
single events (:mod:`podline.deployments.automations`), which say the same in any order.
"""

from __future__ import annotations

from prefect.server.events.ordering import EventArrivedEarly, memory
from prefect.server.events.schemas.events import ReceivedEvent


class CausalOrdering(memory.CausalOrdering):
    """Prefect's own, but that an event waits for one that is being heard of, and for no other."""

    async def wait_for_leader(self, event: ReceivedEvent) -> None:
        """Return when automations may hear of an event."""
        try:
            await super().wait_for_leader(event)
        except EventArrivedEarly:
            await self.forget_follower(event)
