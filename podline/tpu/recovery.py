"""Repairs a TPU node: stops and starts it, or deletes and creates it.

Each method does one complete repair and returns when the node's operations are done; then the gate checks the node. The
methods wait while the API does not answer, and raise all other errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from podline.base.errors import QuotaError, TpuApiError, TpuCapacityError, TpuSetupError
from podline.base.figures import duration
from podline.settings.tpu_settings import NodeSpec, TpuSettings
from podline.tpu.clock import Clock
from podline.tpu.node import IN_QUEUE, State
from podline.tpu.tpu_log import TpuLog

if TYPE_CHECKING:
    from podline.tpu.client import CloudTpu

T = TypeVar("T")


class Recovery:
    """The repairs of one node.

    Args:
        settings: the node, its spec and the delays.
        api: the Cloud TPU API.
        clock: the clock for waiting.
        tpu_log: gets the reasons for waiting.
    """

    def __init__(self, settings: TpuSettings, api: CloudTpu, clock: Clock, tpu_log: TpuLog) -> None:
        self._settings, self._api, self._clock, self._tpu_log = settings, api, clock, tpu_log
        self._name, self._limits = settings.node, settings.limits

    def restart(self) -> None:
        """Stop the node unless it is stopped, then start it."""
        node = self.insist(lambda: self._api.node(self._name))
        if node is None or node.state is not State.STOPPED:
            self.insist(lambda: self._api.stop_node(self._name))
            self._clock.sleep(self._limits.restart.pause)
        self.insist(lambda: self._api.start_node(self._name))

    def recreate(self) -> None:
        """Delete the node if it exists, and create a new one; keep a request that still waits in the queue.

        Raises:
            TpuSetupError: ``tpu.spec`` is not set; then nothing is deleted.
        """
        spec = self._settings.spec
        if spec is None:
            raise TpuSetupError(f"node {self._name} cannot be created again, as tpu.spec is not set; set it")
        deleted = self.delete(waiting=False)
        if deleted:
            self._clock.sleep(self._limits.recreate.pause)
        if spec.queued:
            self._queue(spec)
        else:
            self._create(spec, self._limits.quota_release if deleted else 0.0)

    def delete(self, *, waiting: bool = True) -> bool:
        """Delete the node and its request, also one in the queue if ``waiting``; return whether any was deleted."""
        node = self.insist(lambda: self._api.node(self._name))
        owner = node.queued_resource if node and node.queued_resource else self._name
        request = self.insist(lambda: self._api.queued_resource(owner))
        if request is not None and (waiting or node is not None or request.state not in IN_QUEUE):
            self.insist(lambda: self._api.delete_queued_resource(owner))
            return True
        if node is not None:
            self.insist(lambda: self._api.delete_node(self._name))
            return True
        return False

    def insist(self, call: Callable[[], T]) -> T:
        """Repeat a call while the API does not answer, for ``limits.patience`` seconds; return the call's result.

        Raises:
            TpuApiError: the API did not answer in this time.
        """
        deadline = self._clock.now() + self._limits.patience
        while True:
            try:
                return call()
            except TpuApiError as error:
                if self._clock.now() >= deadline:
                    raise TpuApiError(f"{error}; no answer for {duration(self._limits.patience)}") from error
                self._wait(str(error))

    def _create(self, spec: NodeSpec, quota_patience: float) -> None:
        """Create the node; wait for up to ``quota_patience`` seconds until the quota of a deleted node is free."""
        deadline = self._clock.now() + quota_patience
        while True:
            try:
                return self.insist(lambda: self._api.create_node(self._name, spec))
            except QuotaError:
                if self._clock.now() >= deadline:
                    raise
            self._wait("the quota of the deleted node is not free yet")

    def _queue(self, spec: NodeSpec) -> None:
        """Request the node through Google's queue, and wait until it is created."""
        what = f"queue for node {self._name}"
        if self.insist(lambda: self._api.queued_resource(self._name)) is None:
            self.insist(lambda: self._api.create_queued_resource(self._name, spec))
        deadline = self._clock.now() + self._limits.queue
        while True:
            request = self.insist(lambda: self._api.queued_resource(self._name))
            if request is not None and request.state == "ACTIVE":
                return
            if request is None or request.state not in IN_QUEUE:
                state = f"{request.state} {request.problem}".strip() if request else "gone"
                raise TpuCapacityError(f"{what}: the request is {state}")
            if self._clock.now() >= deadline:
                raise TpuCapacityError(
                    f"{what}: the request is still {request.state} after {duration(self._limits.queue)}; it stays in "
                    "the queue, and the next attempt continues to wait"
                )
            self._wait(f"the request for a node is {request.state}")

    def _wait(self, why: str) -> None:
        self._tpu_log.waited(self._clock.now(), why, self._limits.poll)
        self._clock.sleep(self._limits.poll)
