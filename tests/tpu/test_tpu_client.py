"""The client against a real gRPC server: what it reads, what it asks for, and what it makes of every failure."""

from __future__ import annotations

import re
from pathlib import Path

import google.auth.transport.grpc
import google.auth.transport.requests
import grpc
import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.oauth2.credentials import Credentials
from google.rpc import code_pb2
from http_answers import answering
from standin.bench import NOON, SPEC, api_settings, bench
from standin.cloud import NODE, Cloud
from standin.servers import serving
from standin.timeline import EXPIRED_MESSAGE, NO_CAPACITY, NO_QUOTA, Attempt, Script, life
from turned_clock import TurnedClock

from podline.base import errors
from podline.tpu.api_errors import ArgumentError, explain
from podline.tpu.client import CloudTpu, node_from
from podline.tpu.node import IN_QUEUE, Health, Node, State, Symptom


def test_a_node_is_read_with_its_symptoms_and_their_ages(tmp_path: Path) -> None:
    script = Script(life=life("READY/HEALTHY 40, READY/UNHEALTHY_TENSORFLOW+HBM_OUT_OF_MEMORY"), spot=True)
    with bench(tmp_path, script) as it:
        well = it.api.node(NODE)
        it.clock.turn(45.5)
        unwell = it.api.node(NODE)
    expected = Node(
        name=NODE,
        state=State.READY,
        health=Health.HEALTHY,
        accelerator_type="v4-8",
        runtime_version="tpu-vm-tf-2.20.0-pjrt",
        spot=True,
    )
    assert well == expected
    symptom = Symptom(kind="HBM_OUT_OF_MEMORY", at=NOON + 40)
    assert unwell == expected.model_copy(
        update={
            "health": Health.UNHEALTHY_TENSORFLOW,
            "health_description": "night says UNHEALTHY_TENSORFLOW",
            "symptoms": (symptom,),
        }
    )
    assert symptom.age(it.clock.now()) == 5.5


def test_a_value_that_this_release_does_not_know_is_unknown_and_no_warning() -> None:
    raw = tpu_v2.Node.pb(tpu_v2.Node(name="n"))
    raw.state, raw.health = 77, 78
    raw.symptoms.add().symptom_type = 79
    node = node_from(tpu_v2.Node.wrap(raw))
    assert (node.state, node.health) == (State.UNKNOWN, Health.HEALTH_UNSPECIFIED)
    assert node.symptoms[0].kind == "SYMPTOM_TYPE_UNSPECIFIED"


def test_our_names_are_those_of_the_api() -> None:
    assert set(State) - {State.ABSENT} == set(tpu_v2.Node.State.__members__)
    assert set(Health) == set(tpu_v2.Node.Health.__members__)
    assert {"PROJECT_ABUSE", "SYMPTOM_TYPE_UNSPECIFIED"} < set(tpu_v2.Symptom.SymptomType.__members__)
    queue_states = set(tpu_v2.QueuedResourceState.State.__members__)
    assert IN_QUEUE | {"ACTIVE", "DELETING", "SUSPENDING"} < queue_states


def test_a_node_is_made_as_its_spec_says(tmp_path: Path) -> None:
    (tmp_path / "up.sh").write_text("#!/bin/sh\necho up\n")
    spec = SPEC.model_copy(
        update={
            "spot": True,
            "network": "net",
            "subnetwork": "sub",
            "external_ip": False,
            "service_account": "tpu@test-project.iam.gserviceaccount.com",
            "startup_script": str(tmp_path / "up.sh"),
            "install": "gs://bucket/podline.whl",
            "prefect_url": "http://10.0.0.2:4200/api",
        }
    )
    with bench(tmp_path, Script(life=None)) as it:
        it.api.create_node(NODE, spec)
        made = it.cloud.get_node(NODE)
        found = it.api.node(NODE)
        assert found is not None
    assert (found.spot, found.accelerator_type) == (True, "v4-8")
    assert made.labels == {"made-by": "podline"}
    assert made.runtime_version == "tpu-vm-tf-2.20.0-pjrt"
    assert made.metadata == {
        "startup-script": "#!/bin/sh\necho up\n",
        "podline-node": NODE,
        "podline-project": "test-project",
        "podline-zone": "us-central2-b",
        "podline-install": "gs://bucket/podline.whl",
        "podline-prefect-url": "http://10.0.0.2:4200/api",
    }
    assert made.service_account.email == "tpu@test-project.iam.gserviceaccount.com"
    network = made.network_config
    assert (network.network, network.subnetwork, network.enable_external_ips) == ("net", "sub", False)
    (tmp_path / "up.sh").unlink()
    with bench(tmp_path) as it, pytest.raises(errors.TpuSetupError, match=r"up\.sh cannot be read: No such file"):
        it.api.create_node("other", spec)


def test_an_operation_that_fails_or_does_not_end_is_said(tmp_path: Path) -> None:
    script = Script(
        stops=(Attempt(30, code=code_pb2.INTERNAL, message="an internal error"),),
        starts=(Attempt(7200),),
        life=life("READY/HEALTHY 3000, STOPPED"),
    )
    with bench(tmp_path, script) as it:
        with pytest.raises(errors.TpuUnhealthyError, match="stop node night: an internal error"):
            it.api.stop_node(NODE)
        it.clock.turn(3000)
        with pytest.raises(errors.TpuUnhealthyError, match="start node night: Google needs longer than 30 min"):
            it.api.start_node(NODE)


@pytest.mark.parametrize(
    ("code", "message", "error", "words"),
    [
        (code_pb2.DEADLINE_EXCEEDED, "Deadline Exceeded", errors.TpuApiError, ""),
        (code_pb2.INTERNAL, "internal error", errors.TpuApiError, ""),
        (code_pb2.UNAUTHENTICATED, EXPIRED_MESSAGE, errors.CredentialsError, "log in again"),
        (code_pb2.PERMISSION_DENIED, "Permission 'tpu.nodes.get' denied", errors.TpuSetupError, "roles/tpu.admin"),
        (code_pb2.RESOURCE_EXHAUSTED, "Quota exceeded: 300 requests per minute", errors.TpuApiError, ""),
        (code_pb2.RESOURCE_EXHAUSTED, NO_QUOTA.message, errors.QuotaError, "ask for more quota"),
        (code_pb2.RESOURCE_EXHAUSTED, NO_CAPACITY.message, errors.TpuCapacityError, "no more capacity"),
        (code_pb2.INVALID_ARGUMENT, 'invalid accelerator "v99-8"', ArgumentError, "correct the settings tpu.spec"),
        (code_pb2.UNIMPLEMENTED, "Method not found!", errors.TpuSetupError, "correct tpu.api.endpoint"),
        (code_pb2.FAILED_PRECONDITION, "no", errors.TpuUnhealthyError, ""),
        (code_pb2.ABORTED, "long\n" * 1000, errors.TpuUnhealthyError, ""),
    ],
)
def test_a_refusal_becomes_one_line_of_its_class(
    code: int, message: str, error: type[errors.PodlineError], words: str
) -> None:
    explained = explain("node night", code, message)
    assert type(explained) is error
    assert re.search(words, str(explained))
    assert str(explained).startswith(f"node night: {message.strip()[:4]}")
    assert "\n" not in str(explained)
    assert len(str(explained)) < 600


def test_a_refused_operation_is_explained_unless_it_was_a_matter_of_rate(tmp_path: Path) -> None:
    rate = Attempt(code=code_pb2.RESOURCE_EXHAUSTED, message="Quota exceeded for 'CreateNode requests' 'per minute'")
    with bench(tmp_path, Script(life=None, creates=(NO_QUOTA, rate))) as it:
        with pytest.raises(errors.QuotaError, match="Limit: 8 in zone us-central2-b"):
            it.api.create_node(NODE, SPEC)
        with pytest.raises(errors.TpuUnhealthyError, match="per minute"):
            it.api.create_node(NODE, SPEC)


TOKENS = {
    "expired": (400, b'{"error": "invalid_grant", "error_description": "Token has been expired or revoked."}'),
    "down": (503, b"try again later"),
}


@pytest.mark.parametrize("case", TOKENS)
def test_credentials_that_cannot_be_refreshed_are_no_absent_tpu(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way that Google's client goes: google.auth, gRPC's plugin for credentials, a secure channel."""
    monkeypatch.setattr("google.auth._exponential_backoff.time.sleep", lambda _seconds: None)
    socket = f"unix:{tmp_path}/s"
    local = grpc.LocalConnectionType.UDS
    cloud = Cloud(TurnedClock(NOON))
    with serving(cloud, (socket, grpc.local_server_credentials(local))), answering(lambda _: TOKENS[case]) as tokens:
        error = errors.TpuApiError if case == "down" else errors.CredentialsError
        credentials = Credentials(None, "refresh", token_uri=f"{tokens}/token", client_id="id", client_secret="")
        plugin = google.auth.transport.grpc.AuthMetadataPlugin(credentials, google.auth.transport.requests.Request())
        channel = grpc.secure_channel(
            socket,
            grpc.composite_channel_credentials(
                grpc.local_channel_credentials(local), grpc.metadata_call_credentials(plugin)
            ),
        )
        client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        with pytest.raises(error) as caught:
            CloudTpu(api_settings("127.0.0.1:9"), cloud.clock, client).node(NODE)
        channel.close()
    assert type(caught.value) is error
    assert ("gcloud auth application-default login" in str(caught.value)) == (error is errors.CredentialsError)


def test_no_credentials_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    settings = api_settings("127.0.0.1:9").model_copy(update={"insecure": False})
    with pytest.raises(errors.CredentialsError, match="no credentials for Google Cloud"):
        CloudTpu(settings, TurnedClock())


def test_of_a_node_through_the_queue_the_request_is_reserved_or_spot(tmp_path: Path) -> None:
    """Source: cloud_tpu.proto, v2, whose ``Guaranteed`` has no ``reserved``, and gcloud's ``CreateReservationName``."""
    assert set(tpu_v2.QueuedResource.Guaranteed.meta.fields) == {"min_duration"}
    with bench(tmp_path, Script(life=None)) as it:
        it.api.create_queued_resource(NODE, SPEC.model_copy(update={"reserved": True, "queued": True}))
        reserved = it.cloud.get_request(NODE)
        it.api.create_queued_resource("spot", SPEC.model_copy(update={"spot": True, "queued": True}))
        spot = it.cloud.get_request("spot")
    assert reserved.reservation_name == "projects/test-project/locations/us-central2-b/reservations/-"
    assert ("spot" in reserved, "spot" in spot) == (False, True)
    assert not spot.tpu.node_spec[0].node.scheduling_config.spot
