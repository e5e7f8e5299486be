"""Runs the patrol: finds leftovers of a TPU between runs, and repairs those that the settings allow.

:mod:`podline.tpu.patrol` has the table of actions; this module finds the cases. It holds the lease while it stops or
deletes the node, so that no flow starts using it meanwhile. Its only memory is a variable on the server: the time since
which the node is unused. It stops nothing when it cannot see who uses the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound
from prefect.variables import Variable

from podline.base.errors import PodlineError, TpuInUseError
from podline.base.figures import duration
from podline.report.escaping import markdown
from podline.settings.tpu_settings import TpuSettings
from podline.tasks.node import end_run, is_orphan, lease, limit_of, living_runs
from podline.tasks.server import TAG
from podline.tpu.client import CloudTpu
from podline.tpu.clock import SYSTEM_CLOCK
from podline.tpu.patrol import PatrolCase, PatrolFinding, Remedy, costs, forbidden, node_case
from podline.tpu.recovery import Recovery
from podline.tpu.tpu_log import TpuLog

_ALIVE = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def memory_of(node: str) -> str:
    """Return the name of the variable with the time since which a node is unused, in seconds since 1970."""
    return f"tpu_patrol_{node.replace('-', '_')}"


def patrolled(tpu: TpuSettings) -> tuple[list[PatrolFinding], PodlineError | None]:
    """Run one round; return its findings, and the first error or None. An error does not stop the other actions."""
    with get_client(sync_client=True) as client, CloudTpu(tpu.api, SYSTEM_CLOCK) as api:
        round_ = _Round(tpu, client, api)
        return list(round_.findings()), round_.problem


def publish(findings: list[PatrolFinding], tpu: TpuSettings) -> None:
    """Put the findings of a round on the flow run as a table."""
    create_table_artifact(
        # Prefect's UI reads a table's cells as Markdown, and a run on the server may have any name.
        [{name: markdown(cell) for name, cell in finding.row().items()} for finding in findings],
        key="tpu-patrol",
        description=f"What the patrol found ({tpu.patrol})",
    )


class _Round:
    """One round of the patrol; ``problem`` is the first error."""

    def __init__(self, tpu: TpuSettings, client: SyncPrefectClient, api: CloudTpu) -> None:
        self._tpu, self._client, self._api = tpu, client, api
        self._memory = memory_of(tpu.node)
        self._used: bool | None = None  # it is not known yet
        self.problem: PodlineError | None = None

    def findings(self) -> Iterator[PatrolFinding]:
        """Yield the findings; each is handled before the next is searched."""
        for part in (self._runs, self._lease, self._node):
            try:
                yield from part()
            except PodlineError as error:
                self.problem = self.problem or error

    def _runs(self) -> Iterator[PatrolFinding]:
        """Yield runs on the node that no flow waits for, and record whether any living run may use the node."""
        for run in self._on_node():
            if is_orphan(self._client, run):
                yield self._deal(f"run {run.name}", str(run.state_name), PatrolCase.ORPHAN, partial(self._cancel, run))
        alive = FlowRunFilter.model_validate({"tags": {"all_": [TAG]}, "state": {"type": {"any_": _ALIVE}}})
        self._used = bool(self._on_node()) or bool(self._client.read_flow_runs(flow_run_filter=alive))

    def _on_node(self) -> list[FlowRun]:
        return living_runs(self._client, self._tpu.node) if self._tpu.placement == "node" else []

    def _cancel(self, run: FlowRun) -> str:
        end_run(self._client, run, "the flow that waited for it has ended")
        return "cancelled"

    def _lease(self) -> Iterator[PatrolFinding]:
        name = limit_of(self._tpu.node)
        try:
            taken = self._client.read_global_concurrency_limit_by_name(name).active_slots
        except ObjectNotFound:
            return
        if taken and self._used is False:
            yield self._deal(f"lease {name}", "taken", PatrolCase.LEFT, partial(self._give_back, name))

    def _give_back(self, name: str) -> str:
        self._client.update_global_concurrency_limit(name, GlobalConcurrencyLimitUpdate(active_slots=0))
        return "given back"

    def _node(self) -> Iterator[PatrolFinding]:
        name = self._tpu.node
        node = self._api.node(name)
        request = self._api.queued_resource(node.queued_resource if node and node.queued_resource else name)
        idle = self._unused_for() if costs(node, request) and self._used is False else self._forget()
        case = node_case(node, request, self._tpu, used=self._used, idle_for=idle)
        seen = [f"{node.state}, {node.health}"] if node else ["there is none"]
        seen += [f"request {request.state} {request.problem}".strip()] if request else []
        seen += [f"unused for {duration(idle)}"] if case is PatrolCase.RESTING else []
        remedy = self._stop if case.do is Remedy.STOP else self._delete
        yield self._deal(f"node {name}", ", ".join(seen), case, remedy)

    def _unused_for(self) -> float:
        """Return the seconds since the node was first seen unused."""
        now = SYSTEM_CLOCK.now()
        since = float(str(Variable.get(self._memory, default=now)))
        Variable.set(self._memory, str(since), overwrite=True)
        return now - since

    def _forget(self) -> float:
        Variable.unset(self._memory)
        return 0.0

    def _stop(self) -> str:
        self._api.stop_node(self._tpu.node)
        return "stopped"

    def _delete(self) -> str:
        return "deleted" if Recovery(self._tpu, self._api, SYSTEM_CLOCK, TpuLog()).delete() else "gone already"

    def _deal(self, what: str, seen: str, case: PatrolCase, do: Callable[[], str]) -> PatrolFinding:
        """Take the table's action for ``case`` by calling ``do``, if the settings allow it; return the finding."""
        remedy = case.do
        done = forbidden(remedy, self._tpu)
        if remedy is not Remedy.NOTHING and not done:
            done = self._done(remedy, do)
        return PatrolFinding(what=what, seen=seen, case=case, done=done)

    def _done(self, remedy: Remedy, do: Callable[[], str]) -> str:
        try:
            if remedy not in {Remedy.STOP, Remedy.DELETE}:
                return do()
            with lease(self._tpu):
                return do()
        except TpuInUseError:
            return "not done: a run has begun to use it"
        except PodlineError as error:
            self.problem = self.problem or error
            return f"failed: {error}"
