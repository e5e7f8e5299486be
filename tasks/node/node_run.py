"""Placement *node*, on the flow's side: a stage runs as a deployment that the node's worker takes up.

Whoever calls this holds the lease and is through the gate, so the node is there, healthy and this flow's alone; a run
that is still alive in the node's queue is what an earlier flow left behind when it was killed, and is ended first. What
the stage answers lies in the store, where both find it; why it failed stands in the run's state.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterWorkQueueName,
)
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, State, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling, Crashed

from podline.errors import ChildKilledError, HangError, PermanentError, PodlineError, TpuSetupError, from_json
from podline.progress import Listener, Reporter
from podline.settings import Settings
from podline.stages.specs import Spec
from podline.stages.table import stage_of
from podline.supervision.supervisor import Ending, unless_done
from podline.tasks.node import node_signs
from podline.tpu.clock import in_words

DEPLOYMENT = "stage-on-node/tpu-stage"
_MAKE_IT = "prefect --no-prompt deploy --name tpu-stage"
_POLL = 1.0
# Prefect's worker waits 30 s between SIGTERM and SIGKILL, and looks for what is to be cancelled about as often.
_CANCEL_SECONDS = 90.0


def run_on_node(spec: Spec, listener: Listener, machine: Settings, ending: Ending) -> Any:
    """A stage's result, worked out on the node; a :class:`podline.supervision.running.Runner`.

    Raises:
        PodlineError: what the stage raised there, as the same class.
        HangError: the node's worker did not take the run up, or gave no sign of life for too long.
        ChildKilledError: the run crashed there.
        TpuSetupError: the server has no such deployment, or the node uses another store.
    """
    stage = stage_of(spec)
    assert machine.tpu is not None  # noqa: S101 (there is no placement without one)
    reporter, node, limit = Reporter(stage.name, listener), machine.tpu.node, machine.tpu.limits.worker
    listener({"event": "start", "stage": stage.name})

    def work() -> Any:
        with get_client(sync_client=True) as client:
            _end_leftovers(client, node, reporter)
            run = _NodeRun(client, _begin(spec, node), reporter, node, limit)
            state = run.followed(listener, ending)
        if not state.is_completed():
            raise explained(stage.name, node, state)
        result = stage.find(spec, reporter)
        if result is None:
            raise TpuSetupError(
                f"{stage.name}: its run on node {node} ended well, but what it made is not in {spec.root}; the flow "
                "and the node must use one store"
            )
        return result

    try:
        result = unless_done(work, spec, listener, ending)
    except PodlineError as error:
        listener({"event": "error", "stage": stage.name, "error": error.to_json()})
        raise
    result = result.model_copy(update={"reused": False})
    listener({"event": "result", "stage": stage.name, "result": result.model_dump(mode="json")})
    return result


def failure(error: PodlineError) -> str:
    """An error as a state's message, which :func:`explained` understands."""
    return f"{type(error).__name__}: {error}"


def explained(stage: str, node: str, state: State[Any]) -> PodlineError:
    """What a run that did not end well means to the flow that waited for it."""
    message = state.message or "no message"
    if state.is_cancelled():
        return PermanentError(f"{stage}: its run on node {node} was cancelled: {message}")
    if state.is_crashed():
        return ChildKilledError(f"{stage}: its run on node {node} crashed: {message}")
    kind, _, text = message.partition(": ")
    return from_json({"type": kind, "message": text or message})


def _begin(spec: Spec, node: str) -> UUID:
    stage = stage_of(spec)
    try:
        made = run_deployment(
            DEPLOYMENT,
            parameters={"stage": stage.name, "spec": spec.model_dump(mode="json")},
            flow_run_name=f"{stage.name} on {node}",
            # The node's worker alone looks into this queue, so no other node takes the run.
            work_queue_name=node,
            timeout=0,
        )
    except ObjectNotFound as error:
        raise TpuSetupError(f"the Prefect server has no deployment {DEPLOYMENT!r}; make it: {_MAKE_IT}") from error
    assert isinstance(made, FlowRun)  # noqa: S101 (this is no coroutine, since nothing here is asynchronous)
    return made.id


def living_runs(client: SyncPrefectClient, node: str) -> list[FlowRun]:
    """The runs on a node that have not ended, or not even begun.

    Raises:
        TpuSetupError: the server has no such deployment.
    """
    try:
        deployment = client.read_deployment_by_name(DEPLOYMENT)
    except ObjectNotFound as error:
        raise TpuSetupError(f"the Prefect server has no deployment {DEPLOYMENT!r}; make it: {_MAKE_IT}") from error
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            deployment_id=FlowRunFilterDeploymentId(any_=[deployment.id]),
            work_queue_name=FlowRunFilterWorkQueueName(any_=[node]),
            state=FlowRunFilterState(type=FlowRunFilterStateType(not_any_=list(TERMINAL_STATES))),
        )
    )


def end_run(client: SyncPrefectClient, flow_run: UUID, why: str) -> None:
    """Has a run's worker end it by SIGTERM, so that it saves its work; one that stays is marked as crashed."""
    deadline = time.monotonic() + _CANCEL_SECONDS
    state = client.read_flow_run(flow_run).state
    if state is not None and state.type in {StateType.SCHEDULED, StateType.PENDING}:
        client.set_flow_run_state(flow_run, Cancelled(message=why), force=True)
        return
    client.set_flow_run_state(flow_run, Cancelling(message=why))
    while not _ended(client.read_flow_run(flow_run)):
        if time.monotonic() >= deadline:
            client.set_flow_run_state(flow_run, Crashed(message=f"{why}; its worker did not end it"), force=True)
            return
        time.sleep(_POLL)


def _end_leftovers(client: SyncPrefectClient, node: str, reporter: Reporter) -> None:
    for run in living_runs(client, node):
        reporter.warn(f"ending {run.name}, run {run.id}, which an earlier flow left behind on node {node}")
        end_run(client, run.id, "the flow that waited for it is gone")


def _ended(run: FlowRun) -> bool:
    return run.state is not None and run.state.is_final()


class _NodeRun:
    """A run on the node, while a flow waits for it.

    Args:
        client: of the server that flow and node share.
        flow_run: the run.
        reporter: hears what happens to it.
        node: the node's name.
        limit: seconds until it must be taken up, and between two signs of life.
    """

    def __init__(self, client: SyncPrefectClient, flow_run: UUID, reporter: Reporter, node: str, limit: float) -> None:
        self._client, self._id, self._reporter, self._node, self._limit = client, flow_run, reporter, node, limit
        self._heard = time.monotonic()
        self._last: tuple[object, ...] = ()
        self._answers = True

    def followed(self, listener: Listener, ending: Ending) -> State[Any]:
        """The run's last state; meanwhile its progress is told. However this ends, the run has ended as well."""
        self._reporter.log(f"waits for the worker of node {self._node} to take up run {self._id}")
        try:
            return self._until_over(listener, ending)
        except BaseException as error:
            lost = ending.at_once or isinstance(error, HangError)
            self._end(str(error) or type(error).__name__, at_once=lost)
            raise

    def _until_over(self, listener: Listener, ending: Ending) -> State[Any]:
        while True:
            run = self._look(listener)
            if run is not None and run.state is not None and run.state.is_final():
                return run.state
            if ending.error is not None:
                raise ending.error
            if time.monotonic() - self._heard > self._limit:
                raise HangError(self._silent(run))
            time.sleep(_POLL)

    def _look(self, listener: Listener) -> FlowRun | None:
        """The run as the server knows it; None while there is no server, which ends nothing."""
        try:
            run = self._client.read_flow_run(self._id)
        except httpx.HTTPError as error:
            self._say(f"Prefect's server does not answer, and the run on the node goes on: {error}", answers=False)
            self._heard = time.monotonic()
            return None
        self._say("Prefect's server answers again", answers=True)
        sign = node_signs.read(run.labels)
        seen = (run.state_type, sign.number if sign else None)
        if seen != self._last:
            self._heard, self._last = time.monotonic(), seen
            if sign is not None and sign.progress:
                listener(sign.progress)
        return run

    def _silent(self, run: FlowRun | None) -> str:
        stage, lasting = self._reporter.stage, in_words(self._limit)
        if run is not None and run.state is not None and run.state.is_running():
            return f"{stage}: its run on node {self._node} gave no sign of life for {lasting}"
        return (
            f"{stage}: no worker took up its run on node {self._node} within {lasting}, the setting tpu.limits.worker; "
            "what its start-up script did is in its journal: journalctl -u google-startup-scripts"
        )

    def _end(self, why: str, *, at_once: bool) -> None:
        # The server may be what is gone; the error that is on its way says more than one about that.
        with contextlib.suppress(httpx.HTTPError):
            if at_once:
                self._client.set_flow_run_state(self._id, Crashed(message=why), force=True)
            else:
                end_run(self._client, self._id, why)

    def _say(self, line: str, *, answers: bool) -> None:
        if answers is not self._answers:
            self._reporter.log(line)
        self._answers = answers
