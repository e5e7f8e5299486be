"""The client of the Cloud TPU API v2; only this module and ``api_errors`` import Google's client.

Enums are read as numbers. A number that is missing in this release of Google's client becomes UNKNOWN or UNSPECIFIED,
without a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.longrunning import operations_pb2

from podline.base.errors import TpuApiError, TpuSetupError, TpuUnhealthyError
from podline.base.figures import duration
from podline.settings.tpu_settings import ApiSettings, NodeSpec
from podline.tpu.api_errors import ArgumentError, NotFoundError, explain, explained
from podline.tpu.clock import Clock
from podline.tpu.node import Health, Node, QueuedResource, State, Symptom

T = TypeVar("T")


def connect(settings: ApiSettings) -> tpu_v2.TpuClient:
    """Create Google's client for the endpoint of the settings, without a call to the API.

    Raises:
        CredentialsError: this machine has no credentials.
    """
    with explained(f"Cloud TPU API at {settings.endpoint}"):
        if settings.insecure:
            channel = grpc.insecure_channel(settings.endpoint)
            return tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        return tpu_v2.TpuClient(client_options={"api_endpoint": settings.endpoint})


class CloudTpu:
    """The nodes and queued resources of one project and zone.

    Every method raises the errors of :mod:`podline.tpu.api_errors`: :class:`TpuApiError` if the API does not answer,
    :class:`CredentialsError`, :class:`QuotaError`, :class:`TpuSetupError`, :class:`TpuCapacityError`, and
    :class:`TpuUnhealthyError` if the API refuses a request in the node's present state, or an operation takes too long.

    Args:
        settings: project, zone, and the time limits of calls and operations.
        clock: the clock for waiting until operations are done.
        client: Google's client; by default one from :func:`connect`.
    """

    def __init__(self, settings: ApiSettings, clock: Clock, client: tpu_v2.TpuClient | None = None) -> None:
        self._settings, self._clock = settings, clock
        self._client = client or connect(settings)

    def __enter__(self) -> CloudTpu:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._client.transport.close()

    def node(self, name: str) -> Node | None:
        """Return the node with this name, or None."""
        try:
            return node_from(self._call(f"node {name}", self._client.get_node, name=self._path("nodes", name)))
        except NotFoundError:
            return None

    def create_node(self, name: str, spec: NodeSpec) -> None:
        """Create a node, and wait until it exists."""
        node = _node_message(self._settings, name, spec)
        node.scheduling_config = tpu_v2.SchedulingConfig(spot=spec.spot, reserved=spec.reserved)
        given = {"parent": self._settings.parent, "node_id": name, "node": node}
        self._operate(f"create node {name}", self._client.create_node, **given)

    def start_node(self, name: str) -> None:
        """Start a stopped node, and wait until it has started."""
        self._change(f"start node {name}", self._client.start_node, name)

    def stop_node(self, name: str) -> None:
        """Stop a node that is :attr:`podline.tpu.node.Node.stoppable`, and wait until it has stopped."""
        self._change(f"stop node {name}", self._client.stop_node, name)

    def delete_node(self, name: str) -> None:
        """Delete a node if it exists, and wait until it no longer exists."""
        self._delete(f"delete node {name}", self._client.delete_node, name=self._path("nodes", name))

    def queued_resource(self, name: str) -> QueuedResource | None:
        """Return the queued resource with this name, or None."""
        path = self._path("queuedResources", name)
        try:
            found = self._call(f"queued resource {name}", self._client.get_queued_resource, name=path)
        except NotFoundError:
            return None
        state = tpu_v2.QueuedResource.pb(found).state
        return QueuedResource(
            name=name,
            state=_name(tpu_v2.QueuedResourceState.State, state.state, "STATE_UNSPECIFIED"),
            problem=state.failed_data.error.message,
        )

    def create_queued_resource(self, name: str, spec: NodeSpec) -> None:
        """Request a node of the same name through Google's queue; return once the request is accepted."""
        node = _node_message(self._settings, name, spec)
        node_spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=self._settings.parent, node_id=name, node=node)
        request = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[node_spec]))
        if spec.spot:
            request.spot = tpu_v2.QueuedResource.Spot()
        elif spec.reserved:
            # "-" is any reservation of the project, as `gcloud compute tpus queued-resources create --reserved` asks.
            request.reservation_name = self._path("reservations", "-")
        given = {"parent": self._settings.parent, "queued_resource_id": name, "queued_resource": request}
        self._operate(f"queue for node {name}", self._client.create_queued_resource, **given)

    def delete_queued_resource(self, name: str) -> None:
        """Delete a queued resource and its node, if they exist, and wait until both are deleted."""
        path = self._path("queuedResources", name)
        self._delete(f"delete queued resource {name}", self._client.delete_queued_resource, name=path, force=True)

    def _path(self, kind: str, name: str) -> str:
        return f"{self._settings.parent}/{kind}/{name}"

    def _call(self, what: str, method: Callable[..., T], **request: Any) -> T:
        with explained(what):
            return method(request=request, timeout=self._settings.call_timeout)

    def _operate(self, what: str, method: Callable[..., Any], **request: Any) -> None:
        self._await(what, self._call(what, method, **request).operation)

    def _change(self, what: str, method: Callable[..., Any], name: str) -> None:
        try:
            self._operate(what, method, name=self._path("nodes", name))
        except ArgumentError as error:  # the node cannot be stopped or started, or was just deleted
            raise TpuUnhealthyError(str(error)) from error

    def _delete(self, what: str, method: Callable[..., Any], **request: Any) -> None:
        try:
            self._operate(what, method, **request)
        except NotFoundError:
            return

    def _await(self, what: str, operation: operations_pb2.Operation) -> None:
        """Wait until an operation is done, also while the API does not answer; raise the operation's error.

        After ``operation_timeout`` seconds, raise a TpuUnhealthyError.
        """
        deadline = self._clock.now() + self._settings.operation_timeout
        while not operation.done:
            if self._clock.now() >= deadline:
                raise TpuUnhealthyError(
                    f"{what}: Google needs longer than {duration(self._settings.operation_timeout)}, the setting "
                    "tpu.api.operation_timeout"
                )
            self._clock.sleep(self._settings.operation_poll)
            try:
                operation = self._call(what, self._client.get_operation, name=operation.name)
            except TpuApiError:
                continue
        if operation.HasField("error"):
            error = explain(what, operation.error.code, operation.error.message)
            # The API did answer, so the problem is the node's.
            raise TpuUnhealthyError(str(error)) if isinstance(error, TpuApiError) else error


def node_from(message: tpu_v2.Node) -> Node:
    """Convert a node from the message of Google's client."""
    raw = tpu_v2.Node.pb(message)
    return Node(
        name=raw.name.rpartition("/")[2],
        state=State(_name(tpu_v2.Node.State, raw.state, "UNKNOWN")),
        health=Health(_name(tpu_v2.Node.Health, raw.health, "HEALTH_UNSPECIFIED")),
        health_description=raw.health_description,
        symptoms=tuple(_symptom_from(symptom) for symptom in raw.symptoms),
        accelerator_type=raw.accelerator_type,
        runtime_version=raw.runtime_version,
        spot=raw.scheduling_config.spot or raw.scheduling_config.preemptible,
        queued_resource=raw.queued_resource.rpartition("/")[2],
        hosts=max(len(raw.network_endpoints), 1),
    )


def _symptom_from(raw: Any) -> Symptom:
    kind = _name(tpu_v2.Symptom.SymptomType, raw.symptom_type, "SYMPTOM_TYPE_UNSPECIFIED")
    return Symptom(kind=kind, at=raw.create_time.seconds + raw.create_time.nanos / 1e9)


def _name(enum: Any, number: int, otherwise: str) -> str:
    return next((each.name for each in enum if each == number), otherwise)


def _node_message(api: ApiSettings, name: str, spec: NodeSpec) -> tpu_v2.Node:
    node = tpu_v2.Node(
        accelerator_type=spec.accelerator_type,
        runtime_version=spec.runtime_version,
        network_config=tpu_v2.NetworkConfig(
            network=spec.network, subnetwork=spec.subnetwork, enable_external_ips=spec.external_ip
        ),
        labels={"made-by": "podline"},
    )
    if spec.service_account:
        node.service_account = tpu_v2.ServiceAccount(email=spec.service_account)
    if spec.startup_script:
        node.metadata = _metadata(api, name, spec)
    return node


def _metadata(api: ApiSettings, name: str, spec: NodeSpec) -> dict[str, str]:
    """Return the start-up script and the values that it reads, by metadata key."""
    try:
        script = Path(spec.startup_script).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise TpuSetupError(
            f"tpu.spec.startup_script={spec.startup_script} cannot be read: {error.strerror}; correct the path"
        ) from error
    values = {
        "podline-node": name,
        "podline-project": api.project,
        "podline-zone": api.zone,
        "podline-install": spec.install,
        "podline-prefect-url": spec.prefect_url,
        "podline-prefect-secret": spec.prefect_secret,
    }
    return {"startup-script": script, **{key: value for key, value in values.items() if value}}
