"""Converts messages of ``google.cloud.tpu.v2`` to frozen values and back.

Enums are read as the numbers on the wire: a number that this release of the client does not know yet is then a value of
its own, UNKNOWN or UNSPECIFIED, and no warning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.cloud import tpu_v2
from google.protobuf.timestamp_pb2 import Timestamp

from podline.errors import TpuSetupError
from podline.tpu.node import Health, Node, QueuedResource, QueueState, State, Symptom, SymptomKind
from podline.tpu_settings import NodeSpec

_OURS = ("made-by", "podline")


def node_from(message: tpu_v2.Node) -> Node:
    """A node as the API describes it."""
    raw = tpu_v2.Node.pb(message)
    scheduling = raw.scheduling_config
    return Node(
        name=raw.name.rpartition("/")[2],
        state=State(_name(tpu_v2.Node.State, raw.state, "UNKNOWN")),
        health=Health(_name(tpu_v2.Node.Health, raw.health, "HEALTH_UNSPECIFIED")),
        health_description=raw.health_description,
        symptoms=tuple(_symptom_from(symptom) for symptom in raw.symptoms),
        accelerator_type=raw.accelerator_type,
        runtime_version=raw.runtime_version,
        created=_seconds(raw.create_time),
        spot=scheduling.spot or scheduling.preemptible,
        queued_resource=raw.queued_resource.rpartition("/")[2],
        ours=raw.labels.get(_OURS[0]) == _OURS[1],
    )


def queued_resource_from(message: tpu_v2.QueuedResource) -> QueuedResource:
    """A request in the queue as the API describes it."""
    raw = tpu_v2.QueuedResource.pb(message)
    return QueuedResource(
        name=raw.name.rpartition("/")[2],
        state=QueueState(_name(tpu_v2.QueuedResourceState.State, raw.state.state, "STATE_UNSPECIFIED")),
        nodes=tuple(spec.node_id for spec in raw.tpu.node_spec),
        problem=raw.state.failed_data.error.message,
    )


def node_message(parent: str, name: str, spec: NodeSpec) -> tpu_v2.Node:
    """What to send for a node that is made at once.

    Raises:
        TpuSetupError: the start-up script cannot be read.
    """
    node = _node_of(parent, name, spec)
    node.scheduling_config = tpu_v2.SchedulingConfig(spot=spec.spot, reserved=spec.reserved)
    return node


def queue_message(parent: str, name: str, spec: NodeSpec) -> tpu_v2.QueuedResource:
    """What to send for a node that is asked for through the queue; there the request, not the node, is spot.

    Raises:
        TpuSetupError: the start-up script cannot be read.
    """
    node_spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id=name, node=_node_of(parent, name, spec))
    message = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[node_spec]))
    if spec.spot:
        message.spot = tpu_v2.QueuedResource.Spot()
    elif spec.reserved:
        message.guaranteed = tpu_v2.QueuedResource.Guaranteed()
    return message


def _node_of(parent: str, name: str, spec: NodeSpec) -> tpu_v2.Node:
    node = tpu_v2.Node(
        accelerator_type=spec.accelerator_type,
        runtime_version=spec.runtime_version,
        network_config=tpu_v2.NetworkConfig(
            network=spec.network, subnetwork=spec.subnetwork, enable_external_ips=spec.external_ip
        ),
        labels=dict([_OURS]),
    )
    if spec.service_account:
        node.service_account = tpu_v2.ServiceAccount(email=spec.service_account)
    if spec.startup_script:
        node.metadata = _metadata(parent, name, spec)
    return node


def _metadata(parent: str, name: str, spec: NodeSpec) -> dict[str, str]:
    """The start-up script, under the name that Google's agent looks for, and what deployments/tpu-startup.sh reads."""
    try:
        script = Path(spec.startup_script).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise TpuSetupError(f"tpu.spec.startup_script = {spec.startup_script}: {error.strerror}") from error
    _, project, _, zone = parent.split("/")
    told = {
        "podline-node": name,
        "podline-project": project,
        "podline-zone": zone,
        "podline-install": spec.install,
        "podline-prefect-url": spec.prefect_url,
        "podline-prefect-secret": spec.prefect_secret,
    }
    return {"startup-script": script, **{key: value for key, value in told.items() if value}}


def _symptom_from(raw: Any) -> Symptom:
    return Symptom(
        kind=SymptomKind(_name(tpu_v2.Symptom.SymptomType, raw.symptom_type, "SYMPTOM_TYPE_UNSPECIFIED")),
        at=_seconds(raw.create_time),
        details=raw.details,
        worker=raw.worker_id,
    )


def _name(enum: Any, number: int, otherwise: str) -> str:
    return enum(number).name if number in enum._value2member_map_ else otherwise


def _seconds(timestamp: Timestamp) -> float:
    return timestamp.seconds + timestamp.nanos / 1e9
