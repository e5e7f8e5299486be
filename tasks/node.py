"""Placement *node*, on the flow's side: reserves the node for this flow, and runs stages there by a deployment.

The node's worker executes the runs. A stage's result is in the store, which both can read; its error is in the run's
state.

Processes of one machine take turns by :mod:`podline.tpu.turn`. Flows on several machines take turns by a lease: the
only slot of Prefect's concurrency limit ``tpu-NODE``. A flow renews its lease until it ends. A server that was away for
longer than a lease lasts drops the lease, and the flow takes it again. Meanwhile another flow may get the lease. So a
flow also looks for runs on the node: it ends orphans only, never a run for which another flow waits.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import httpx
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, State
from prefect.client.schemas.responses import ConcurrencyLimitWithLeaseResponse
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Cancelled, Cancelling, Crashed

from podline.base.errors import (
    CancelledError,
    ChildKilledError,
    HangError,
    PodlineError,
    TpuInUseError,
    TpuSetupError,
    from_json,
)
from podline.base.figures import duration
from podline.base.progress import Listener, Reporter, beside, report_stage
from podline.report.escaping import markdown
from podline.settings.machine import Settings
from podline.settings.tpu_settings import TpuSettings
from podline.stages.base import Spec
from podline.stages.supervision.running import Runner
from podline.stages.supervision.supervisor import Ending, run_stage, unless_done
from podline.stages.table import stage_of
from podline.tasks.server import key_of, recipe_of
from podline.tpu.clock import SYSTEM_CLOCK
from podline.tpu.tpu_log import TURN, TpuLog, rows

DEPLOYMENT = "stage-on-node/tpu-stage"
_LEASE_SECONDS = 120.0  # Prefect's servers allow no less than 60
_RENEW_SECONDS = 30.0
_ASK_SECONDS = 5.0
_POLL = 1.0
# Prefect's worker waits 30 s between SIGTERM and SIGKILL, and checks for cancellations about as often.
_CANCEL_SECONDS = 90.0


def limit_of(node: str) -> str:
    """Return the name of a node's concurrency limit."""
    return f"tpu-{node}"


@contextlib.contextmanager
def placed(tpu: TpuSettings, tpu_log: TpuLog) -> Iterator[Runner]:
    """Yield the function that runs a stage here or on the node; afterwards publish the TPU log.

    If stages run on the node, this flow holds the node's lease while the body runs. If they run on this machine, only
    the gate is used.

    Args:
        tpu: settings with the node, the placement, and the longest wait ``limits.turn``.
        tpu_log: gets the reasons for waiting.

    Raises:
        TpuInUseError: the node was in use for longer than ``limits.turn``.
        TpuSetupError: the server lacks the deployment.
    """
    try:
        with contextlib.ExitStack() as stack:
            if tpu.placement == "node":
                _wait_for(stack, tpu, tpu_log)
                yield run_on_node
            else:
                yield run_stage
    finally:
        _publish(tpu_log)


def _wait_for(stack: contextlib.ExitStack, tpu: TpuSettings, tpu_log: TpuLog) -> None:
    deadline = time.monotonic() + tpu.limits.turn
    while True:
        try:
            stack.enter_context(lease(tpu, tpu_log.say))
        except (TpuInUseError, httpx.HTTPError) as error:
            why = str(error) if isinstance(error, TpuInUseError) else "the Prefect server does not answer"
            if time.monotonic() >= deadline:
                patience = f"waited {duration(tpu.limits.turn)}, the setting tpu.limits.turn"
                raise TpuInUseError(f"{why}; {patience}; end the run that has the node, or try later") from error
            tpu_log.waited(SYSTEM_CLOCK.now(), f"{TURN}: {why}", _ASK_SECONDS)
            time.sleep(_ASK_SECONDS)
        else:
            return


@contextlib.contextmanager
def lease(tpu: TpuSettings, say: Callable[[str], None] = lambda _line: None) -> Iterator[None]:
    """Hold the lease on the TPU node while the body runs; ignore outages of the Prefect server meanwhile.

    Args:
        tpu: settings with the node.
        say: called with a line when a lost lease was taken again.

    Raises:
        TpuInUseError: another flow has the lease, or a run on the node.
        TpuSetupError: stages run on the node, and the server lacks their deployment.
        httpx.HTTPError: the server does not answer.
    """
    held = _Lease(tpu.node, say)
    with get_client(sync_client=True) as client:
        held.take(client)
        try:
            if tpu.placement == "node":
                orphans(client, tpu.node)
            with beside(held.keep, _RENEW_SECONDS, "tpu-lease"):
                yield
        finally:
            held.give_back()


class _Lease:
    """The only slot of a node's concurrency limit.

    Prefect's own context manager stops renewing for good after three failures, and never takes a slot again.
    """

    def __init__(self, node: str, say: Callable[[str], None]) -> None:
        self._node, self._say = node, say
        self._id: UUID | None = None

    def take(self, client: SyncPrefectClient) -> None:
        """Take the slot; raise TpuInUseError if another flow has it."""
        name = limit_of(self._node)
        client.upsert_global_concurrency_limit_by_name(name, 1)
        try:
            answer = client.increment_concurrency_slots_with_lease([name], 1, "concurrency", _LEASE_SECONDS)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.LOCKED:
                raise TpuInUseError(f"another run has the node {self._node}") from error
            raise
        self._id = ConcurrencyLimitWithLeaseResponse.model_validate(answer.json()).lease_id

    def keep(self, _last: bool) -> float:
        """Renew the slot, or take it again; return the seconds until the next call.

        An unavailable server is asked again soon.
        """
        with contextlib.suppress(httpx.HTTPError, TpuInUseError), get_client(sync_client=True) as client:
            if self._id is None:
                self.take(client)
                self._say(f"the lease on node {self._node} was lost while the server was away, and is taken again")
            elif _is_gone(client, self._id):
                self._id = None
                return 0.0
            return _RENEW_SECONDS
        return _ASK_SECONDS

    def give_back(self) -> None:
        """Release the slot; if the server does not answer, it expires."""
        with contextlib.suppress(httpx.HTTPError), get_client(sync_client=True) as client:
            if self._id is not None:
                client.release_concurrency_slots_with_lease(self._id)


def _is_gone(client: SyncPrefectClient, lease_id: UUID) -> bool:
    """Renew a lease; return whether the server no longer knows it."""
    try:
        client.renew_concurrency_lease(lease_id, _LEASE_SECONDS)
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.GONE:
            raise
        return True
    return False


def _publish(tpu_log: TpuLog) -> None:
    """Put the TPU log on the run as a table."""
    # An unavailable server must not fail the stage, nor hide its error.
    with contextlib.suppress(Exception):
        # Prefect's UI reads a table's cells as Markdown.
        cells = [{name: markdown(cell) for name, cell in row.items()} for row in rows(tpu_log.entries)]
        about = f"What happened to the TPU of {tpu_log.folder}"
        create_table_artifact(cells, key=key_of(recipe_of(tpu_log.folder), "tpu"), description=about)


def run_on_node(spec: Spec, listener: Listener, machine: Settings, ending: Ending) -> Any:
    """Run a stage on the node and return its result; a :class:`podline.stages.supervision.running.Runner`.

    The caller has the lease and has passed the gate, so the node exists and is healthy.

    Raises:
        PodlineError: an error of the stage on the node, with the same class.
        HangError: the node's worker did not start the run.
        ChildKilledError: the run crashed on the node.
        TpuInUseError: another flow still waits for a run on the node.
        TpuSetupError: the server lacks the deployment, or the node uses another store.
    """
    stage = stage_of(spec)
    assert machine.tpu is not None  # noqa: S101 (there is no placement without one)
    reporter, node, limit = Reporter(stage.name, listener), machine.tpu.node, machine.tpu.limits.worker

    def work() -> Any:
        with get_client(sync_client=True) as client:
            for run in orphans(client, node):
                reporter.warn(f"ending {run.name}, run {run.id}, which an earlier flow left behind on node {node}")
                end_run(client, run, "the flow that waited for it has ended")
            run = _begin(spec, node)
            reporter.log(f"waits for the worker of node {node} to start run {run.name} ({run.id})")
            state = _followed(client, run, ending, limit)
        if not state.is_completed():
            raise error_of(stage.name, node, state)
        result = stage.find(spec, reporter)
        if result is None:
            raise TpuSetupError(
                f"{stage.name}: its run on node {node} ended well, but its result is not in {spec.root}; the flow "
                "and the node must use one store"
            )
        return result

    def new() -> Any:
        return unless_done(work, spec, listener, ending).model_copy(update={"reused": False})

    return report_stage(stage.name, listener, new)


def failure(error: PodlineError) -> str:
    """Encode an error as a state's message, which :func:`error_of` decodes."""
    return f"{error.known.__name__}: {error}"


def error_of(stage: str, node: str, state: State[Any]) -> PodlineError:
    """Return the error for the waiting flow from the state of a failed run."""
    message = state.message or "no message"
    if state.is_cancelled():
        return CancelledError(f"{stage}: its run on node {node} was cancelled: {message}")
    if state.is_crashed():
        return ChildKilledError(f"{stage}: its run on node {node} crashed: {message}")
    kind, _, text = message.partition(": ")
    return from_json({"type": kind, "message": text or message})


def orphans(client: SyncPrefectClient, node: str) -> list[FlowRun]:
    """Return the runs on a node that have not ended, if no other flow waits for any of them.

    Raises:
        TpuInUseError: another flow, which has not ended, waits for one of the runs.
        TpuSetupError: the server lacks the deployment.
    """
    runs = living_runs(client, node)
    for run in runs:
        if not is_orphan(client, run):
            raise TpuInUseError(f"run {run.name} ({run.id}) is on the node {node}, and its flow still waits for it")
    return runs


def is_orphan(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Return whether no other flow, or only one that has ended, waits for a run on the node."""
    if run.parent_task_run_id is None:
        return True
    ours = TaskRunFilter.model_validate({"id": {"any_": [run.parent_task_run_id]}})
    parents = [parent for parent in client.read_flow_runs(task_run_filter=ours) if str(parent.id) != flow_run.id]
    return all(parent.state is not None and parent.state.is_final() for parent in parents)


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
    living = {
        "deployment_id": {"any_": [deployment.id]},
        "work_queue_name": {"any_": [node]},
        "state": {"type": {"not_any_": list(TERMINAL_STATES)}},
    }
    return client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(living))


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
