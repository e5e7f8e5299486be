"""A slot of a Prefect concurrency limit, on a lease that is renewed and outlasts a server's restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import httpx
from prefect.client.schemas.objects import ConcurrencyLeaseHolder
from prefect.client.schemas.responses import ConcurrencyLimitWithLeaseResponse
from prefect.runtime import task_run

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


class Slot:
    """A slot; ``lease`` while this run has it.

    Attributes:
        limit: the limit's name.
        users: how many the limit allows, as it was told last; 0 where the server has no such limit.
        lease: of the slot; None while this run has none.
    """

    def __init__(
        self, client: SyncPrefectClient, limit: str, holder: ConcurrencyLeaseHolder | None, lease_seconds: float
    ) -> None:
        """A slot, not taken yet.

        Args:
            client: of the server.
            limit: the limit's name.
            holder: who the server notes as its holder.
            lease_seconds: the slot is free so long after its user's process has died, at the latest.
        """
        self.limit, self.users, self.lease = limit, 1, None
        self._client, self._holder, self._seconds = client, holder, lease_seconds

    lease: UUID | None

    def take(self) -> bool:
        """Takes it, if one is free; also False, with ``users`` 0, where there is no such limit.

        Raises:
            httpx.HTTPError: the server does not answer, or refuses.
        """
        try:
            response = self._client.increment_concurrency_slots_with_lease(
                names=[self.limit], slots=1, mode="concurrency", lease_duration=self._seconds, holder=self._holder
            )
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.LOCKED:
                return False
            raise
        given = ConcurrencyLimitWithLeaseResponse.model_validate(response.json())
        self.users = given.limits[0].limit if given.limits else 0
        self.lease = given.lease_id if given.limits else None
        return bool(given.limits)

    def keep(self) -> bool:
        """Renews the lease, or takes another one if it has run out; whether this run has the slot.

        Raises:
            httpx.HTTPError: the server does not answer.
        """
        if self.lease is None:
            return self.take()
        try:
            self._client.renew_concurrency_lease(self.lease, self._seconds)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.GONE:
                raise
            self.lease = None
            return self.take()
        return True

    def give_back(self, say: Callable[[str], None]) -> None:
        """Gives it back; a server that is away is no reason to fail, since the lease ends by itself."""
        if self.lease is None:
            return
        try:
            self._client.release_concurrency_slots_with_lease(self.lease)
        except httpx.HTTPError as error:
            say(
                f"the lease on the limit {self.limit!r} could not be given back, and ends within {self._seconds:g} s "
                f"({error})"
            )


def holder() -> ConcurrencyLeaseHolder | None:
    """This task run, as the holder of a slot; None outside of one."""
    return ConcurrencyLeaseHolder(type="task_run", id=UUID(str(task_run.id))) if task_run.id else None


def is_away(error: httpx.HTTPError) -> bool:
    """Whether an error says that the server is away, and not that it refuses."""
    return not isinstance(error, httpx.HTTPStatusError) or error.response.is_server_error
