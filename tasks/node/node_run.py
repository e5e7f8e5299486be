"""Placement *node*, on the flow's side: runs a stage as a deployment, which the node's worker executes.

The waiting flow has the lease and has passed the gate, so the node exists, is healthy and belongs to this flow only. A
living run in the node's queue is a leftover of a killed flow, and is ended first. The stage's result is in the store,
which both can read; its error is in the run's state.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterWorkQueueName,
)
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, State
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling, Crashed

from podline.errors import CancelledError, ChildKilledError, HangError, PodlineError, TpuSetupError, from_json
from podline.figures import duration
from podline.progress import Listener, Reporter
from podline.settings import Settings
from podline.stages.specs import Spec
from podline.stages.table import stage_of
from podline.supervision.supervisor import Ending, unless_done

DEPLOYMENT = "stage-on-node/tpu-stage"
_POLL = 1.0
# Prefect's worker waits 30 s between SIGTERM and SIGKILL, and checks for cancellations about as often.
_CANCEL_SECONDS = 90.0


def run_on_node(spec: Spec, listener: Listener, machine: Settings, ending: Ending) -> Any:
    """Run a stage on the node and return its result; a :class:`podline.supervision.running.Runner`.

    Raises:
        PodlineError: an error of the stage on the node, with the same class.
        HangError: the node's worker did not start the run.
        ChildKilledError: the run crashed on the node.
        TpuSetupError: the server lacks the deployment, or the node uses another store.
    """
    stage = stage_of(spec)
    assert machine.tpu is not None  # noqa: S101 (there is no placement without one)
    reporter, node, limit = Reporter(stage.name, listener), machine.tpu.node, machine.tpu.limits.worker
    listener({"event": "start", "stage": stage.name})

    def work() -> Any:
        with get_client(sync_client=True) as client:
            for run in living_runs(client, node):
                reporter.warn(f"ending {run.name}, run {run.id}, which an earlier flow left behind on node {node}")
                end_run(client, run, "the flow that waited for it has ended")
            run = _begin(spec, node)
            reporter.log(f"waits for the worker of node {node} to start run {run.name} ({run.id})")
            state = _followed(client, run, ending, limit)
        if not state.is_completed():
            raise explained(stage.name, node, state)
        result = stage.find(spec, reporter)
        if result is None:
            raise TpuSetupError(
                f"{stage.name}: its run on node {node} ended well, but its result is not in {spec.root}; the flow "
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
    """Encode an error as a state's message, which :func:`explained` decodes."""
    return f"{type(error).__name__}: {error}"


def explained(stage: str, node: str, state: State[Any]) -> PodlineError:
    """Return the error for the waiting flow from the state of a failed run."""
    message = state.message or "no message"
    if state.is_cancelled():
        return CancelledError(f"{stage}: its run on node {node} was cancelled: {message}")
    if state.is_crashed():
        return ChildKilledError(f"{stage}: its run on node {node} crashed: {message}")
    kind, _, text = message.partition(": ")
    return from_json({"type": kind, "message": text or message})


def living_runs(client: SyncPrefectClient, node: str) -> list[FlowRun]:
    """Return the runs on a node that have not ended.

    Raises:
        TpuSetupError: the server lacks the deployment.
    """
    try:
        deployment = client.read_deployment_by_name(DEPLOYMENT)
    except ObjectNotFound as error:
        raise TpuSetupError(
            f"tpu.placement = 'node': the Prefect server has no deployment {DEPLOYMENT!r}; make it with `podline "
            "deploy`, and start a deployment instead of `podline run`, whose own server no node knows"
        ) from error
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            deployment_id=FlowRunFilterDeploymentId(any_=[deployment.id]),
            work_queue_name=FlowRunFilterWorkQueueName(any_=[node]),
            state=FlowRunFilterState(type=FlowRunFilterStateType(not_any_=list(TERMINAL_STATES))),
        )
    )


def end_run(client: SyncPrefectClient, run: FlowRun, why: str) -> None:
    """End a run through its worker by SIGTERM, so that it saves its work; mark it as crashed if it does not end."""
    if _has_not_begun(client.read_flow_run(run.id)):
        client.set_flow_run_state(run.id, Cancelled(message=why), force=True)
        return
    client.set_flow_run_state(run.id, Cancelling(message=why))
    deadline = time.monotonic() + _CANCEL_SECONDS
    while (state := client.read_flow_run(run.id).state) is None or not state.is_final():
        if time.monotonic() >= deadline:
            client.set_flow_run_state(run.id, Crashed(message=f"{why}; its worker did not end it"), force=True)
            return
        time.sleep(_POLL)


def _begin(spec: Spec, node: str) -> FlowRun:
    stage = stage_of(spec)
    run = run_deployment(
        DEPLOYMENT,
        parameters={"stage": stage.name, "spec": spec.model_dump(mode="json")},
        flow_run_name=f"{stage.name} on {node}",
        # Only this node's worker reads this queue, so no other node takes the run.
        work_queue_name=node,
        timeout=0,
    )
    assert isinstance(run, FlowRun)  # noqa: S101 (this is no coroutine, since nothing here is asynchronous)
    return run


def _followed(client: SyncPrefectClient, run: FlowRun, ending: Ending, limit: float) -> State[Any]:
    """Wait for the run's end and return its last state; if this raises, the run has ended as well.

    A started run sends heartbeats to the server, which marks it as crashed when they stop.
    """
    deadline = time.monotonic() + limit
    try:
        while run.state is None or not run.state.is_final():
            if _has_not_begun(run) and time.monotonic() > deadline:
                why = f"no worker started the run {run.name} within {duration(limit)}, the setting tpu.limits.worker"
                ending.ask(HangError(f"{why}; see `journalctl -u google-startup-scripts` on the node"), at_once=True)
            if ending.error is not None:
                raise ending.error  # noqa: TRY301 (it is caught like an interruption)
            time.sleep(_POLL)
            with contextlib.suppress(httpx.HTTPError):  # an unavailable server does not end the run
                run = client.read_flow_run(run.id)
    except BaseException as error:
        _end(client, run, str(error) or type(error).__name__, at_once=ending.at_once)
        raise
    return run.state


def _end(client: SyncPrefectClient, run: FlowRun, why: str, *, at_once: bool) -> None:
    # The server may be unavailable; the error being raised is more informative.
    with contextlib.suppress(httpx.HTTPError):
        if at_once:
            client.set_flow_run_state(run.id, Crashed(message=why), force=True)
        else:
            end_run(client, run, why)


def _has_not_begun(run: FlowRun) -> bool:
    return run.state is None or run.state.is_scheduled() or run.state.is_pending()
