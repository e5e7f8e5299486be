"""The Cloud TPU API over gRPC and a metadata server over HTTP, both real, both on this machine, both on one clock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc
from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from http_answers import Request, answering
from standin.cloud import Cloud, RefusedError
from standin.timeline import Announcement

from podline.tpu.clock import Clock

_CODES = {code.value[0]: code for code in grpc.StatusCode}


@contextlib.contextmanager
def serving(cloud: Cloud, *addresses: tuple[str, grpc.ServerCredentials]) -> Iterator[str]:
    """The API of a cloud; its address. It can also serve more addresses, with credentials."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers(_handlers(cloud))
    port = server.add_insecure_port("127.0.0.1:0")
    for address, credentials in addresses:
        server.add_secure_port(address, credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def _handlers(cloud: Cloud) -> tuple[grpc.GenericRpcHandler, grpc.GenericRpcHandler]:
    answers: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
        "GetNode": (lambda ask: cloud.get_node(_short(ask)), tpu_v2.GetNodeRequest, tpu_v2.Node),
        "CreateNode": (lambda ask: cloud.create_node(ask.node_id, ask.node), tpu_v2.CreateNodeRequest, None),
        "DeleteNode": (lambda ask: cloud.delete_node(_short(ask)), tpu_v2.DeleteNodeRequest, None),
        "StopNode": (lambda ask: cloud.stop_node(_short(ask)), tpu_v2.StopNodeRequest, None),
        "StartNode": (lambda ask: cloud.start_node(_short(ask)), tpu_v2.StartNodeRequest, None),
        "GetQueuedResource": (
            lambda ask: cloud.get_request(_short(ask)),
            tpu_v2.GetQueuedResourceRequest,
            tpu_v2.QueuedResource,
        ),
        "CreateQueuedResource": (
            lambda ask: cloud.create_request(ask.queued_resource_id, ask.queued_resource),
            tpu_v2.CreateQueuedResourceRequest,
            None,
        ),
        "DeleteQueuedResource": (
            lambda ask: cloud.delete_request(_short(ask), force=ask.force),
            tpu_v2.DeleteQueuedResourceRequest,
            None,
        ),
    }
    nodes = {name: _method(cloud, *answer) for name, answer in answers.items()}
    operations = {
        "GetOperation": grpc.unary_unary_rpc_method_handler(
            _answering(cloud, lambda ask: cloud.get_operation(ask.name)),
            request_deserializer=operations_pb2.GetOperationRequest.FromString,
            response_serializer=operations_pb2.Operation.SerializeToString,
        )
    }
    return (
        grpc.method_handlers_generic_handler("google.cloud.tpu.v2.Tpu", nodes),
        grpc.method_handlers_generic_handler("google.longrunning.Operations", operations),
    )


def _method(cloud: Cloud, answer: Callable[[Any], Any], request: Any, response: Any = None) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        _answering(cloud, answer),
        request_deserializer=request.deserialize,
        response_serializer=response.serialize if response else operations_pb2.Operation.SerializeToString,
    )


def _answering(cloud: Cloud, answer: Callable[[Any], Any]) -> Callable[[Any, grpc.ServicerContext], Any]:
    def handle(ask: Any, context: grpc.ServicerContext) -> Any:
        outage = next((outage for outage in cloud.script.outages if outage.start <= cloud.now < outage.end), None)
        if outage is not None and not outage.lost:
            context.abort(_CODES[outage.code], outage.message)
        try:
            with cloud.lock:
                answered = answer(ask)
        except RefusedError as error:
            context.abort(_CODES[error.code], error.message)
        if outage is not None:
            context.abort(_CODES[outage.code], outage.message)
        return answered

    return handle


def _short(ask: Any) -> str:
    return ask.name.rpartition("/")[2]


@contextlib.contextmanager
def announcing(clock: Clock, announcements: Sequence[Announcement] = (), flavor: str = "Google") -> Iterator[str]:
    """A metadata server; its address. It refuses who does not say ``Metadata-Flavor: Google``, as the real one does."""
    started = clock.now()

    def answer(request: Request) -> tuple[int, bytes]:
        if request.headers.get("Metadata-Flavor") != "Google":
            return 403, b"Missing Metadata-Flavor:Google header."
        key = request.path.partition("?")[0].removeprefix("/computeMetadata/v1/instance/")
        now = clock.now() - started
        said = [said.value for said in announcements if said.key == key and said.start <= now < said.end]
        if said and said[-1] == "fails":
            return 500, b""
        if said:
            return 200, said[-1].encode()
        if key == "upcoming-maintenance":
            return 503, b'{ "error": "no notifications have been received yet, try again later" }'
        quiet = {"preempted": b"FALSE", "maintenance-event": b"NONE"}
        return (200, quiet[key]) if key in quiet else (404, b"")

    with answering(answer, Metadata_Flavor=flavor) as url:
        yield url.removeprefix("http://")
