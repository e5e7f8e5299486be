"""The patrol's round: lists Google Cloud's resources and Prefect's runs, and repairs what the settings allow.

What is done in which case is :mod:`podline.tpu.patrol`'s table; here is where the cases are looked for. A deed that
takes a node away is done while the lease is held, so that no run begins to use it meanwhile. The only memory is a
variable on the server: since when nobody was seen to use what.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterId,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Crashed
from prefect.variables import Variable

from podline import entry_points, settings
from podline.errors import PodlineError, SettingsError, TpuSetupError
from podline.reporting.templates import markdown
from podline.tasks.node import tpu_lease, tpu_use
from podline.tasks.node.node_run import end_run, living_runs
from podline.tasks.node.tpu_holder import holders
from podline.tasks.runs.asking import explained, require_named
from podline.tasks.runs.tags import OUR_TAGS, SILENCE
from podline.tpu import lock
from podline.tpu.client import CloudTpu
from podline.tpu.clock import in_words
from podline.tpu.patrol import TABLE, Deed, PatrolCase, PatrolFinding, forbidden, node_case, request_case, run_case
from podline.tpu.recovery import Recovery
from podline.tpu.tpu_log import TpuLog
from podline.tpu_settings import TpuSettings

# By name, since tasks do not import flows.
_FLOW = "podline.flows.tpu_patrol:tpu_patrol"
# What the patrol remembers from one round to the next.
_MEMORY = "tpu_patrol"
_LEASE = "lease tpu"
# A lease that nobody renews ends within 120 s (tpu_lease), and the server looks for such every few seconds.
_LEASE_ENDS = 600.0
_TURN_SECONDS = 5.0


def patrolled() -> list[PatrolFinding]:
    """One round, as a flow run: a table artifact, and a run that fails if something could not be looked at or done.

    Raises:
        PodlineError: the first that went wrong; all else was done.
    """
    tpu = settings.load().tpu
    if tpu is None:
        # The deployment comes with its schedule, also to those who have no TPU.
        get_run_logger().info("the settings name no TPU; nothing to patrol")
        return []
    with get_client(sync_client=True) as client, CloudTpu(tpu.api, tpu_use.CLOCK) as api:
        round_ = _Round(tpu, client, api)
        findings = list(round_.findings())
    create_table_artifact(
        # Prefect's UI reads a table's cells as Markdown, and a run on the server may have any name.
        [{name: markdown(cell) for name, cell in finding.row().items()} for finding in findings],
        key="tpu-patrol",
        description=f"What the patrol found ({tpu.patrol})",
    )
    if round_.problem is not None:
        raise round_.problem
    return findings


def patrolled_by_hand() -> list[PatrolFinding]:
    """One round from the command line.

    Raises:
        SettingsError: the settings name no TPU, nothing names a Prefect server, or it asks for another secret.
        PodlineError: the server does not answer, or refuses.
    """
    if settings.load().tpu is None:
        raise SettingsError("which TPU? set tpu.node, tpu.api.project and tpu.api.zone; see docs/tpu.md")
    require_named()
    with explained():
        return entry_points.load(_FLOW)()


class _Round:
    """One round of the patrol.

    Attributes:
        problem: the first thing that went wrong.
    """

    def __init__(self, tpu: TpuSettings, client: SyncPrefectClient, api: CloudTpu) -> None:
        self._tpu, self._client, self._api = tpu, client, api
        self._now, self._used = tpu_use.CLOCK.now(), False
        self._since: dict[str, float] = json.loads(str(Variable.get(_MEMORY, default="{}")))
        self._seen: dict[str, float] = {}
        self.problem: PodlineError | None = None

    def findings(self) -> Iterator[PatrolFinding]:
        """What there is, each done with before the next is looked for."""
        parts = (self._runs, self._lease, self._requests, self._nodes, self._lock)
        for part in parts:
            try:
                yield from part()
            except PodlineError as error:
                self.problem = self.problem or error
        Variable.set(_MEMORY, json.dumps(self._seen), overwrite=True)

    def _runs(self) -> Iterator[PatrolFinding]:
        """Runs of ours that are said to be running, and those on the node, which use it even before they run."""
        on_node = {run.id: run for run in self._on_node()}
        ours = (run for run in self._running() if set(run.tags) & set(OUR_TAGS))
        running = {run.id: run for run in ours if str(run.id) != flow_run.id}
        limit = SILENCE.total_seconds()
        for run in (running | on_node).values():
            silent = self._silence(run)
            case = run_case(silent, limit, orphan=run.id in on_node and self._is_orphan(run))
            seen = "no sign of life yet" if silent is None else f"last sign of life {in_words(silent)} ago"
            end = self._crash if case is PatrolCase.SILENT else self._cancel
            yield self._deal(f"run {run.name}", f"{run.state_name}, {seen}", case, partial(end, run))
        self._used = bool(self._on_node())

    def _on_node(self) -> list[FlowRun]:
        """The living runs in the node's queue; with the placement *here* there is none, nor a deployment for them."""
        return living_runs(self._client, self._tpu.node) if self._tpu.placement == "node" else []

    def _running(self) -> list[FlowRun]:
        living = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.CANCELLING]))
        return self._client.read_flow_runs(flow_run_filter=FlowRunFilter(state=living))

    def _silence(self, run: FlowRun) -> float | None:
        """Seconds since a run's last heartbeat, or since it began to run again after that."""
        question = {
            "event": {"name": ["prefect.flow-run.heartbeat"]},
            "resource": {"id": [f"prefect.flow-run.{run.id}"]},
            "order": "DESC",
        }
        answer = self._client.request("POST", "/events/filter", json={"filter": question, "limit": 1})
        beats = answer.raise_for_status().json()["events"]
        if not beats or run.state is None:
            return None
        last = max(datetime.fromisoformat(beats[0]["occurred"]), run.state.timestamp)
        return max((datetime.now(UTC) - last).total_seconds(), 0.0)

    def _is_orphan(self, run: FlowRun) -> bool:
        """Whether a run on the node works for a flow that has ended."""
        if run.parent_task_run_id is None:
            return True
        ours = TaskRunFilter(id=TaskRunFilterId(any_=[run.parent_task_run_id]))
        waiting = self._client.read_flow_runs(task_run_filter=ours)
        return not any(parent.state is not None and not parent.state.is_final() for parent in waiting)

    def _crash(self, run: FlowRun) -> str:
        self._client.set_flow_run_state(run.id, Crashed(message="its signs of life have stopped"), force=True)
        return "marked as crashed"

    def _cancel(self, run: FlowRun) -> str:
        end_run(self._client, run.id, "the flow that waited for it has ended")
        return "cancelled"

    def _lease(self) -> Iterator[PatrolFinding]:
        try:
            limit = self._client.read_global_concurrency_limit_by_name(tpu_lease.LIMIT)
        except ObjectNotFound as error:
            raise TpuSetupError(
                f"the Prefect server has no concurrency limit {tpu_lease.LIMIT!r}; make it: "
                f"prefect global-concurrency-limit create {tpu_lease.LIMIT} --limit 1"
            ) from error
        if not limit.active_slots:
            return
        having = holders(self._running())
        if having:
            self._used = True
            yield self._deal(_LEASE, f"run {having[0].name} has it", PatrolCase.HELD)
            return
        for_long = self._unused_for(_LEASE)
        self._used = self._used or for_long < _LEASE_ENDS
        case = PatrolCase.LEFT if for_long >= _LEASE_ENDS else PatrolCase.ENDING
        yield self._deal(_LEASE, f"taken, and nobody has it, for {in_words(for_long)}", case, self._give_back)

    def _give_back(self) -> str:
        nobody = GlobalConcurrencyLimitUpdate(active_slots=0)
        self._client.update_global_concurrency_limit(tpu_lease.LIMIT, nobody)
        return "given back"

    def _requests(self) -> Iterator[PatrolFinding]:
        for request in self._api.queued_resources():
            what, idle = f"request {request.name}", 0.0
            if not self._used:
                idle = self._unused_for(what)
            case = request_case(request, self._tpu, used=self._used, idle_for=idle)
            yield self._deal(what, f"{request.state} {request.problem}".strip(), case, self._delete)

    def _nodes(self) -> Iterator[PatrolFinding]:
        for node in self._api.nodes():
            what, idle, seen = f"node {node.name}", 0.0, f"{node.state}, {node.health}"
            if not self._used and node.state == "READY" and node.name == self._tpu.node:
                idle = self._unused_for(what)
                seen += f", nobody has used it for {in_words(idle)}"
            case = node_case(node, self._tpu, used=self._used, idle_for=idle)
            yield self._deal(what, seen, case, self._stop if TABLE[case].do is Deed.STOP else self._delete)

    def _stop(self) -> str:
        self._api.stop_node(self._tpu.node)
        return "stopped"

    def _delete(self) -> str:
        Recovery(self._tpu, self._api, tpu_use.CLOCK, TpuLog()).delete()
        return "deleted"

    def _lock(self) -> Iterator[PatrolFinding]:
        machine = self._tpu.machine
        if machine is None:
            return
        view = lock.look(machine)

        def remove() -> str:
            lock.clear(machine, lambda _line: None)
            return "removed"

        yield self._deal("lock", str(view), PatrolCase.STALE if view.stale else PatrolCase.LOCKED, remove)

    def _unused_for(self, what: str) -> float:
        """Seconds since something was first seen unused, without a use in between."""
        since = self._since.get(what, self._now)
        self._seen[what] = since
        return self._now - since

    def _deal(self, what: str, seen: str, case: PatrolCase, do: Callable[[], str] = str) -> PatrolFinding:
        """Does what the table says, if it may."""
        deed = TABLE[case].do
        done = forbidden(deed, self._tpu)
        if deed is not Deed.NOTHING and not done:
            done = self._done(deed, do)
        return PatrolFinding(what=what, seen=seen, case=case, done=done)

    def _done(self, deed: Deed, do: Callable[[], str]) -> str:
        try:
            if deed not in {Deed.STOP, Deed.DELETE}:
                return do()
            with concurrency(tpu_lease.LIMIT, occupy=1, strict=True, timeout_seconds=_TURN_SECONDS):
                return do()
        except TimeoutError:
            return "not done: a run has begun to use it"
        except PodlineError as error:
            self.problem = self.problem or error
            return f"failed: {error}"
