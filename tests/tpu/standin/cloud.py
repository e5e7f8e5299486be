"""Nodes, requests and operations as Google keeps them, moved by a clock that tests turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import code_pb2, status_pb2
from standin.timeline import Attempt, Life, Phase, Script

from podline.tpu.clock import Clock

STOPPED = (Phase("STOPPED", "HEALTH_UNSPECIFIED"),)
PARENT = "projects/test-project/locations/us-central2-b"
NODE = "night"


class RefusedError(Exception):
    """An answer other than OK; ``code`` is one of google.rpc.Code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass
class _Node:
    """A node; while an operation is under way on it, ``passing`` is the state that it shows."""

    message: tpu_v2.Node
    life: Life
    born: float
    passing: str = ""

    def live(self, life: Life, clock: Clock) -> None:
        self.life, self.born = life, clock.now()


@dataclass
class _Request:
    message: tpu_v2.QueuedResource
    state: str = "WAITING_FOR_RESOURCES"
    problem: str = ""


@dataclass
class _Operation:
    name: str
    until: float
    finish: Callable[[], object]
    attempt: Attempt
    done: bool = False


@dataclass
class Cloud:
    """One project and zone; ``calls`` has the verb of each call that changed something."""

    clock: Clock
    script: Script = field(default_factory=Script)
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = self.clock.now()
        self.lock = threading.RLock()
        self._nodes: dict[str, _Node] = {}
        self._requests: dict[str, _Request] = {}
        self._operations: dict[str, _Operation] = {}
        if self.script.life is not None:
            self.add(NODE, self.script.life)

    def add(self, name: str, life: Life) -> None:
        """Puts a node there, as if someone had made it before."""
        message = tpu_v2.Node(
            accelerator_type="v4-8",
            runtime_version="tpu-vm-tf-2.20.0-pjrt",
            scheduling_config=tpu_v2.SchedulingConfig(spot=self.script.spot),
            network_endpoints=[tpu_v2.NetworkEndpoint()] * self.script.hosts,
        )
        self._put(name, message, life)

    @property
    def now(self) -> float:
        return self.clock.now() - self.started

    # What can be asked.

    def get_node(self, name: str) -> tpu_v2.Node:
        self._settle()
        return self._described(name, self._node(name))

    def get_request(self, name: str) -> tpu_v2.QueuedResource:
        self._settle()
        return self._described_request(name, self._request(name))

    def get_operation(self, name: str) -> operations_pb2.Operation:
        self._settle()
        if name not in self._operations:
            raise RefusedError(code_pb2.NOT_FOUND, f"operation {name!r} was not found")
        return self._message_of(self._operations[name])

    # What can be done.

    def stop_node(self, name: str) -> operations_pb2.Operation:
        self._settle()
        node = self._node(name)
        several = len(node.message.network_endpoints) > 1
        if several or node.message.queued_resource or node.message.scheduling_config.spot:
            raise RefusedError(code_pb2.INVALID_ARGUMENT, "Spot and queued TPU nodes and slices cannot be stopped.")
        self._must_be(node, "stop", "READY")
        attempt = self._begin("stop", self.script.stops)
        return self._change(node, attempt, "STOPPING", lambda: node.live(STOPPED, self.clock))

    def start_node(self, name: str) -> operations_pb2.Operation:
        self._settle()
        node = self._node(name)
        self._must_be(node, "start", "STOPPED")
        attempt = self._begin("start", self.script.starts)
        return self._change(node, attempt, "STARTING", lambda: node.live(attempt.life, self.clock))

    def delete_node(self, name: str) -> operations_pb2.Operation:
        self._settle()
        node = self._node(name)
        if node.passing == "DELETING":
            raise RefusedError(code_pb2.FAILED_PRECONDITION, "delete is not supported while in state DELETING.")
        attempt = self._begin("delete", self.script.deletes)
        return self._change(node, attempt, "DELETING", lambda: self._nodes.pop(name, None))

    def create_node(self, name: str, message: tpu_v2.Node) -> operations_pb2.Operation:
        self._settle()
        if name in self._nodes:
            raise RefusedError(code_pb2.ALREADY_EXISTS, f"Resource '{PARENT}/nodes/{name}' already exists")
        attempt = self._begin("create", self.script.creates)
        node = self._put(name, message, attempt.life)
        operation = self._change(node, attempt, "CREATING", lambda: node.live(attempt.life, self.clock))
        if attempt.code != code_pb2.OK:
            self._operations[operation.name].finish = lambda: self._nodes.pop(name, None)
        return operation

    def _change(
        self, node: _Node, attempt: Attempt, passing: str, succeed: Callable[[], object]
    ) -> operations_pb2.Operation:
        """Begin an operation on a node, which shows a passing state until its end."""
        node.passing = passing

        def finish() -> None:
            node.passing = ""
            if attempt.code == code_pb2.OK:
                succeed()

        return self._operate(attempt, finish)

    def create_request(self, name: str, message: tpu_v2.QueuedResource) -> operations_pb2.Operation:
        self._settle()
        if name in self._requests:
            raise RefusedError(code_pb2.ALREADY_EXISTS, f"Resource '{PARENT}/queuedResources/{name}' already exists")
        turn = self._begin("queue", self.script.turns)
        request = self._requests[name] = _Request(message)
        spec = message.tpu.node_spec[0]

        def fulfil() -> None:
            if request is not self._requests.get(name):
                return  # deleted in the meantime
            if turn.code != code_pb2.OK:
                request.state, request.problem = "FAILED", turn.message
                return
            request.state = "ACTIVE"
            spec.node.queued_resource = f"{PARENT}/queuedResources/{name}"
            self._put(spec.node_id, spec.node, turn.life)

        self._operate(turn, fulfil)
        return self._operate(Attempt(1.0), lambda: None)

    def delete_request(self, name: str, *, force: bool) -> operations_pb2.Operation:
        self._settle()
        request = self._request(name)
        owned = [spec.node_id for spec in request.message.tpu.node_spec if spec.node_id in self._nodes]
        if owned and not force:
            raise RefusedError(code_pb2.FAILED_PRECONDITION, "the queued resource has nodes")
        attempt = self._begin("unqueue", self.script.deletes)
        request.state = "DELETING"

        def finish() -> None:
            self._requests.pop(name, None)
            for node in owned:
                self._nodes.pop(node, None)

        return self._operate(attempt, finish)

    # How it moves.

    def _settle(self) -> None:
        """Ends the operations whose time has come, in the order of their times."""
        due = [operation for operation in self._operations.values() if not operation.done]
        for operation in sorted(due, key=lambda operation: operation.until):
            if operation.until <= self.clock.now():
                operation.done = True
                operation.finish()

    def _begin(self, verb: str, attempts: Sequence[Attempt]) -> Attempt:
        attempt = attempts[min(self.calls.count(verb), len(attempts) - 1)]
        self.calls.append(verb)
        if attempt.at_once and attempt.code != code_pb2.OK:
            raise RefusedError(attempt.code, attempt.message)
        return attempt

    def _operate(self, attempt: Attempt, finish: Callable[[], object]) -> operations_pb2.Operation:
        name = f"{PARENT}/operations/operation-{len(self._operations)}"
        operation = _Operation(name, self.clock.now() + attempt.seconds, finish, attempt)
        self._operations[name] = operation
        return self._message_of(operation)

    def _message_of(self, operation: _Operation) -> operations_pb2.Operation:
        message = operations_pb2.Operation(name=operation.name, done=operation.done)
        if operation.done and operation.attempt.code != code_pb2.OK:
            message.error.CopyFrom(status_pb2.Status(code=operation.attempt.code, message=operation.attempt.message))
        elif operation.done:
            message.response.Pack(tpu_v2.Node.pb(tpu_v2.Node()))
        return message

    # How it is described.

    def _put(self, name: str, message: tpu_v2.Node, life: Life) -> _Node:
        message.name = f"{PARENT}/nodes/{name}"
        node = self._nodes[name] = _Node(message, life, self.clock.now())
        return node

    def _described(self, name: str, node: _Node) -> tpu_v2.Node:
        message = tpu_v2.Node(node.message)
        phase, symptoms = self._phase(node)
        message.state = tpu_v2.Node.State[node.passing or phase.state]
        message.health = tpu_v2.Node.Health["HEALTH_UNSPECIFIED" if node.passing else phase.health]
        if message.health not in (tpu_v2.Node.Health.HEALTHY, tpu_v2.Node.Health.HEALTH_UNSPECIFIED):
            message.health_description = f"{name} says {phase.health}"
        message.symptoms = symptoms
        return message

    def _phase(self, node: _Node) -> tuple[Phase, list[tpu_v2.Symptom]]:
        begins, symptoms, phase = node.born, [], node.life[-1]
        for phase in node.life:
            if phase.symptom:
                kind = tpu_v2.Symptom.SymptomType[phase.symptom]
                symptoms.append(tpu_v2.Symptom(create_time=_timestamp(begins), symptom_type=kind))
            begins += phase.seconds
            if self.clock.now() < begins:
                break
        return phase, symptoms

    def _described_request(self, name: str, request: _Request) -> tpu_v2.QueuedResource:
        message = tpu_v2.QueuedResource(request.message)
        message.name = f"{PARENT}/queuedResources/{name}"
        state = tpu_v2.QueuedResourceState(state=tpu_v2.QueuedResourceState.State[request.state])
        if request.problem:
            state.failed_data = tpu_v2.QueuedResourceState.FailedData(error=status_pb2.Status(message=request.problem))
        message.state = state
        return message

    def _node(self, name: str) -> _Node:
        return self._found(self._nodes, "nodes", name)

    def _request(self, name: str) -> _Request:
        return self._found(self._requests, "queuedResources", name)

    def _found(self, things: dict[str, Any], kind: str, name: str) -> Any:
        if name not in things:
            raise RefusedError(code_pb2.NOT_FOUND, f"Resource '{PARENT}/{kind}/{name}' was not found")
        return things[name]

    def _must_be(self, node: _Node, verb: str, state: str) -> None:
        found = node.passing or self._phase(node)[0].state
        if found != state:
            raise RefusedError(
                code_pb2.FAILED_PRECONDITION,
                f"Cloud TPU received a bad request. {verb} is not supported while in state {found}.",
            )


def _timestamp(seconds: float) -> Timestamp:
    whole = int(seconds)
    return Timestamp(seconds=whole, nanos=int((seconds - whole) * 1e9))
