"""The client of the Cloud TPU API v2; the one module that imports Google's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.longrunning import operations_pb2

from podline.errors import TpuApiError, TpuUnhealthyError
from podline.tpu.api_errors import NotFoundError, explain, explained
from podline.tpu.clock import Clock, in_words
from podline.tpu.messages import node_from, node_message, queue_message, queued_resource_from
from podline.tpu.node import Node, QueuedResource
from podline.tpu_settings import ApiSettings, NodeSpec

T = TypeVar("T")


def connect(settings: ApiSettings) -> tpu_v2.TpuClient:
    """Google's client for an endpoint; makes no call yet.

    Raises:
        CredentialsError: there are none on this machine.
    """
    with explained(f"Cloud TPU API at {settings.endpoint}"):
        if settings.insecure:
            channel = grpc.insecure_channel(settings.endpoint)
            return tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        return tpu_v2.TpuClient(client_options={"api_endpoint": settings.endpoint})


class CloudTpu:
    """The nodes and queued resources of one project and zone.

    Every method raises what :mod:`podline.tpu.api_errors` makes of a failure: :class:`TpuApiError` when the API does
    not answer, :class:`CredentialsError`, :class:`QuotaError`, :class:`TpuSetupError`, :class:`TpuCapacityError`, and
    :class:`TpuUnhealthyError` when it refuses, which it does to what cannot be done in a node's present state.

    Args:
        settings: project, zone, patience with calls and operations.
        clock: asked and slept on while an operation is awaited.
        client: Google's own; :func:`connect` makes one.
    """

    def __init__(self, settings: ApiSettings, clock: Clock, client: tpu_v2.TpuClient | None = None) -> None:
        self._settings, self._clock = settings, clock
        self._client = client or connect(settings)

    def close(self) -> None:
        """Ends the connection."""
        self._client.transport.close()

    def __enter__(self) -> CloudTpu:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def node(self, name: str) -> Node | None:
        """A node, or None if there is none of that name."""
        try:
            found = self._call(f"node {name}", self._client.get_node, name=self._node_path(name))
        except NotFoundError:
            return None
        return node_from(found)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, by name."""
        what = f"nodes of {self._settings.parent}"
        with explained(what):  # pages are fetched while they are read
            found = [
                node_from(node) for node in self._call(what, self._client.list_nodes, parent=self._settings.parent)
            ]
        return tuple(sorted(found, key=lambda node: node.name))

    def create_node(self, name: str, spec: NodeSpec) -> None:
        """Makes a node, and waits until it is made."""
        parent = self._settings.parent
        request = {"parent": parent, "node_id": name, "node": node_message(parent, name, spec)}
        self._operate(f"create node {name}", self._client.create_node, **request)

    def start_node(self, name: str) -> None:
        """Starts a stopped node, and waits until it has."""
        self._change(f"start node {name}", self._client.start_node, name)

    def stop_node(self, name: str) -> None:
        """Stops a node, and waits until it has. Spot nodes and those of queued resources cannot be stopped."""
        self._change(f"stop node {name}", self._client.stop_node, name)

    def delete_node(self, name: str) -> None:
        """Deletes a node, and waits until it is gone; one that is gone already is no error."""
        self._delete(f"delete node {name}", self._client.delete_node, name=self._node_path(name))

    def queued_resource(self, name: str) -> QueuedResource | None:
        """A queued resource, or None if there is none of that name."""
        try:
            found = self._call(f"queued resource {name}", self._client.get_queued_resource, name=self._queue_path(name))
        except NotFoundError:
            return None
        return queued_resource_from(found)

    def queued_resources(self) -> tuple[QueuedResource, ...]:
        """All queued resources, by name."""
        what = f"queued resources of {self._settings.parent}"
        with explained(what):
            pages = self._call(what, self._client.list_queued_resources, parent=self._settings.parent)
            found = [queued_resource_from(resource) for resource in pages]
        return tuple(sorted(found, key=lambda resource: resource.name))

    def create_queued_resource(self, name: str, spec: NodeSpec) -> None:
        """Asks for a node of the same name through the queue, and waits until the request is accepted, no longer."""
        self._operate(
            f"queue for node {name}",
            self._client.create_queued_resource,
            parent=self._settings.parent,
            queued_resource_id=name,
            queued_resource=queue_message(self._settings.parent, name, spec),
        )

    def delete_queued_resource(self, name: str) -> None:
        """Deletes a queued resource with its nodes, and waits until all are gone; none is no error."""
        self._delete(
            f"delete queued resource {name}",
            self._client.delete_queued_resource,
            name=self._queue_path(name),
            force=True,
        )

    def _call(self, what: str, method: Callable[..., T], **request: Any) -> T:
        with explained(what):
            return method(request=request, timeout=self._settings.call_timeout)

    def _operate(self, what: str, method: Callable[..., Any], **request: Any) -> None:
        self._await(what, self._call(what, method, **request).operation)

    def _change(self, what: str, method: Callable[..., Any], name: str) -> None:
        try:
            self._operate(what, method, name=self._node_path(name))
        except NotFoundError as error:  # it was there a moment ago
            raise TpuUnhealthyError(str(error)) from error

    def _delete(self, what: str, method: Callable[..., Any], **request: Any) -> None:
        try:
            self._operate(what, method, **request)
        except NotFoundError:
            return

    def _await(self, what: str, operation: operations_pb2.Operation) -> None:
        """Waits for an operation on our own clock; an API that does not answer meanwhile is no end of it."""
        deadline = self._clock.now() + self._settings.operation_timeout
        while not operation.done:
            if self._clock.now() >= deadline:
                raise TpuUnhealthyError(f"{what}: not done after {in_words(self._settings.operation_timeout)}")
            self._clock.sleep(self._settings.operation_poll)
            try:
                operation = self._call(what, self._client.get_operation, name=operation.name)
            except TpuApiError:
                continue
        if operation.HasField("error"):
            error = explain(what, operation.error.code, operation.error.message)
            # The API did answer; it is the node that did not get there.
            raise TpuUnhealthyError(str(error)) if isinstance(error, TpuApiError) else error

    def _node_path(self, name: str) -> str:
        return f"{self._settings.parent}/nodes/{name}"

    def _queue_path(self, name: str) -> str:
        return f"{self._settings.parent}/queuedResources/{name}"
