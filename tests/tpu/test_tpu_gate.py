"""The gate end to end, over gRPC, on a clock that the waits themselves turn: what it does, and how long it takes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2
from standin.bench import NOON, SPEC, Bench, bench
from standin.cloud import NODE
from standin.servers import announcing
from standin.timeline import EXPIRED_MESSAGE, NO_CAPACITY, NO_QUOTA, Announcement, Attempt, Outage, Script, life
from turned_clock import TurnedClock

from podline import errors
from podline.tpu.node import Health, State
from podline.tpu.tpu_log import Event
from podline.tpu_settings import Limits, MachineSettings

LIMITS = Limits()
QUEUED = SPEC.model_copy(update={"queued": True})
HOLDS = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True)"


def pass_gate(it: Bench) -> None:
    """Goes through, and sees that TensorFlow would have found what it needs."""
    with it.admitted():
        node = it.api.node(NODE)
        assert node is not None
        assert (node.state, node.health) == (State.READY, Health.HEALTHY)


def test_a_well_node_is_used_at_once(tmp_path: Path) -> None:
    with bench(tmp_path) as it:
        pass_gate(it)
        assert it.cloud.now == 0
    assert it.events() == ["go", "leave"]
    assert it.lines == ["go: node night: READY, HEALTHY", "leave: left the TPU in good order"]


def test_an_unhealthy_node_that_gets_well_is_only_waited_for(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=life("READY/UNHEALTHY_TENSORFLOW 600, READY/HEALTHY"))) as it:
        pass_gate(it)
        assert it.cloud.now == 600
        assert it.cloud.calls == []
    assert it.events() == ["wait", "go", "leave"]
    assert it.tpu_log.entries[0].took == 600


@pytest.mark.parametrize("health", ["UNHEALTHY_TENSORFLOW", "TIMEOUT", "UNHEALTHY_MAINTENANCE", "HEALTH_UNSPECIFIED"])
def test_one_that_does_not_is_restarted_after_its_twenty_minutes(tmp_path: Path, health: str) -> None:
    with bench(tmp_path, Script(life=life(f"READY/{health}"))) as it:
        pass_gate(it)
    # 30 s for the stop, 10 s in between, 60 s for the start.
    assert it.cloud.calls == [(1200, "stop", NODE), (1240, "start", NODE)]
    assert it.events() == ["wait", "restart", "go", "leave"]
    assert [entry.took for entry in it.tpu_log.entries] == [1200, 100, 1300, 0]


def test_restarts_that_do_not_help_end_in_a_new_node(tmp_path: Path) -> None:
    script = Script(
        life=life("READY/TIMEOUT"),
        starts=(
            Attempt(60, life("READY/TIMEOUT")),
            Attempt(60, code=code_pb2.INTERNAL, message="the second restart fails"),
        ),
    )
    with bench(tmp_path, script) as it:
        pass_gate(it)
    assert it.cloud.calls == [
        (1200, "stop", NODE),
        (1240, "start", NODE),
        (1300 + 600, "stop", NODE),
        (1940, "start", NODE),
        (2000 + 30, "delete", NODE),
        (2050 + 60, "create", NODE),
    ]
    assert it.events() == ["wait", "restart", "wait", "restart", "wait", "recreate", "go", "leave"]
    assert "the second restart fails" in it.tpu_log.entries[3].what
    assert not it.tpu_log.entries[3].worked


def test_new_nodes_that_do_not_help_end_in_one_clear_line(tmp_path: Path) -> None:
    ill = Attempt(60, life("READY/TIMEOUT"))
    with (
        bench(tmp_path, Script(life=life("READY/TIMEOUT"), starts=(ill,), creates=(ill,))) as it,
        pytest.raises(errors.TpuUnhealthyError) as caught,
    ):
        pass_gate(it)
    message = str(caught.value)
    assert "node night: READY, TIMEOUT" in message
    assert "2 of 2 restarts, 2 of 2 new nodes" in message
    assert it.events()[-1] == "give up"
    assert (it.cloud.count("stop"), it.cloud.count("delete"), it.cloud.count("create")) == (2, 2, 2)


@pytest.mark.parametrize("state", ["PREEMPTED", "TERMINATED"])
def test_a_node_that_was_taken_away_is_replaced_straight_away(tmp_path: Path, state: str) -> None:
    with bench(tmp_path, Script(life=life(state))) as it:
        pass_gate(it)
    assert it.cloud.calls == [(0, "delete", NODE), (20 + 60, "create", NODE)]
    assert it.events() == ["replace", "go", "leave"]


def test_preemptions_have_a_budget_of_their_own(tmp_path: Path) -> None:
    with (
        bench(tmp_path, Script(life=life("PREEMPTED"), creates=(Attempt(60, life("PREEMPTED")),))) as it,
        pytest.raises(errors.TpuGoneError, match="5 of 5 for preempted ones"),
    ):
        pass_gate(it)
    assert it.events() == ["replace"] * 5 + ["give up"]


def test_budgets_are_the_runs_and_not_the_attempts(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=life("READY/TIMEOUT"))) as it:
        for _ in range(2):
            it.tpu_log.tell(NOON - 9000, Event.RESTART, "earlier")
        pass_gate(it)
    assert it.events() == ["restart", "restart", "wait", "recreate", "go", "leave"]


def test_a_stopped_node_is_started_and_no_node_is_made(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=life("STOPPED"))) as it:
        pass_gate(it)
        assert it.cloud.calls == [(0, "start", NODE)]
    with bench(tmp_path, Script(life=None)) as it:
        pass_gate(it)
        assert it.cloud.calls == [(0, "create", NODE)]


def test_a_spot_node_that_cannot_be_stopped_is_recreated(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=life("READY/TIMEOUT"), spot=True)) as it:
        pass_gate(it)
    assert [verb for _, verb, _ in it.cloud.calls] == ["delete", "create"]


def test_a_fresh_symptom_is_waited_out(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=life("READY/HEALTHY+HBM_OUT_OF_MEMORY"))) as it:
        pass_gate(it)
        assert it.cloud.now == LIMITS.symptom_age


def test_an_api_that_is_away_for_ten_minutes_is_waited_for(tmp_path: Path) -> None:
    with bench(tmp_path, Script(outages=(Outage(0, 600),))) as it:
        pass_gate(it)
        assert it.cloud.now == 600
    assert it.tpu_log.entries[0].what == "node night: The service is currently unavailable"


def test_an_api_that_goes_away_in_the_middle_of_a_repair(tmp_path: Path) -> None:
    outages = (Outage(1235, 1300), Outage(1310, 1900))
    with bench(tmp_path, Script(life=life("READY/TIMEOUT"), outages=outages)) as it:
        pass_gate(it)
    assert [verb for _, verb, _ in it.cloud.calls] == ["stop", "start"]


def test_an_api_that_goes_away_in_the_middle_of_a_repair_and_stays_away(tmp_path: Path) -> None:
    script = Script(life=life("READY/TIMEOUT"), outages=(Outage(1235, 1e9),))
    with bench(tmp_path, script) as it, pytest.raises(errors.TpuApiError) as caught:
        pass_gate(it)
    assert str(caught.value) == "start node night: The service is currently unavailable; no answer for 20 min"
    assert it.cloud.now == 1240 + 1200


def test_answers_that_are_lost_do_no_harm(tmp_path: Path) -> None:
    outages = (Outage(1195, 1205, lost=True), Outage(1235, 1245, lost=True))
    with bench(tmp_path, Script(life=life("READY/TIMEOUT"), outages=outages)) as it:
        pass_gate(it)


def test_an_api_that_stays_away_is_said(tmp_path: Path) -> None:
    with (
        bench(tmp_path, Script(outages=(Outage(0, 9999),))) as it,
        pytest.raises(errors.TpuApiError, match="currently unavailable; no answer for 20 min"),
    ):
        pass_gate(it)
    assert it.cloud.now == 1200


@pytest.mark.parametrize(
    ("script", "error", "took"),
    [
        (Script(outages=(Outage(0, 9999, code_pb2.UNAUTHENTICATED, EXPIRED_MESSAGE),)), errors.CredentialsError, 0),
        (Script(outages=(Outage(0, 9999, code_pb2.PERMISSION_DENIED, "no"),)), errors.TpuSetupError, 0),
        (Script(life=None, creates=(NO_QUOTA,)), errors.QuotaError, 0),
        # A quota that the node just deleted may still use up: five minutes, in polls.
        (Script(life=life("PREEMPTED"), creates=(NO_QUOTA,)), errors.QuotaError, 20 + 60 + 300),
        (Script(life=None, creates=(NO_CAPACITY,)), errors.TpuCapacityError, 60),
        (Script(life=life("READY/HEALTHY+PROJECT_ABUSE")), errors.TpuSetupError, 0),
    ],
)
def test_what_a_wait_does_not_mend_is_said_at_once(
    tmp_path: Path, script: Script, error: type[errors.PodlineError], took: float
) -> None:
    with bench(tmp_path, script) as it, pytest.raises(error) as caught:
        pass_gate(it)
    assert type(caught.value) is error
    assert it.cloud.now == took
    assert it.events()[-1] == "give up"
    assert it.tpu_log.entries[-1].what == str(caught.value)


def test_a_quota_that_is_released_late_is_waited_for(tmp_path: Path) -> None:
    script = Script(life=life("PREEMPTED"), creates=(NO_QUOTA, NO_QUOTA, Attempt(120)))
    with bench(tmp_path, script) as it:
        pass_gate(it)
    assert it.cloud.count("create") == 3
    assert it.events() == ["wait", "replace", "go", "leave"]


def test_no_capacity_uses_up_no_budget(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=None, creates=(NO_CAPACITY, NO_CAPACITY, NO_CAPACITY, Attempt(60)))) as it:
        for _ in range(3):
            with pytest.raises(errors.TpuCapacityError):
                pass_gate(it)
        pass_gate(it)
    assert it.tpu_log.tried().recreations == 1


def test_a_node_through_the_queue_waits_for_its_turn(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=None, turns=(Attempt(3600),)), spec=QUEUED) as it:
        pass_gate(it)
        assert it.cloud.now == pytest.approx(3600, abs=60)
    assert [verb for _, verb, _ in it.cloud.calls] == ["queue"]
    assert it.tpu_log.entries[0].what == "the request for a node is WAITING_FOR_RESOURCES"


def test_a_place_in_the_queue_is_kept_from_one_attempt_to_the_next(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=None, turns=(Attempt(30_000),)), spec=QUEUED) as it:
        with pytest.raises(errors.TpuCapacityError, match="still WAITING_FOR_RESOURCES after 6 h"):
            pass_gate(it)
        pass_gate(it)
    assert [verb for _, verb, _ in it.cloud.calls] == ["queue"]


def test_a_preempted_node_of_the_queue_goes_with_its_request(tmp_path: Path) -> None:
    turns = (Attempt(60, life("READY/HEALTHY 600, PREEMPTED")), Attempt(60))
    with bench(tmp_path, Script(life=None, turns=turns), spec=QUEUED) as it:
        pass_gate(it)
        it.clock.turn(3600)
        pass_gate(it)
    assert [verb for _, verb, _ in it.cloud.calls] == ["queue", "unqueue", "queue"]


def test_a_request_that_fails_is_said(tmp_path: Path) -> None:
    turns = (Attempt(60, code=code_pb2.RESOURCE_EXHAUSTED, message="expired before there was room"),)
    with (
        bench(tmp_path, Script(life=None, turns=turns), spec=QUEUED) as it,
        pytest.raises(errors.TpuCapacityError, match="the request is FAILED expired before there was room"),
    ):
        pass_gate(it)


def test_without_a_spec_nothing_is_deleted(tmp_path: Path) -> None:
    with (
        bench(tmp_path, Script(life=life("PREEMPTED")), spec=None) as it,
        pytest.raises(errors.TpuGoneError, match="the settings have no spec"),
    ):
        pass_gate(it)
    assert it.cloud.calls == []


# On the TPU VM itself.


def here(tmp_path: Path, **changes: Any) -> MachineSettings:
    return MachineSettings(
        lock_file=str(tmp_path / "libtpu_lockfile"), devices=(), **{"metadata_address": "127.0.0.1:9", **changes}
    )


def test_a_stale_lock_is_removed_with_a_line(tmp_path: Path) -> None:
    machine = here(tmp_path)
    Path(machine.lock_file).touch()
    with bench(tmp_path, machine=machine) as it:
        pass_gate(it)
    assert it.events() == ["lock", "go", "leave"]
    assert it.lines[0] == f"lock: removed {machine.lock_file}, which a dead process had left behind"


def test_a_living_holder_is_named_and_waited_for(tmp_path: Path) -> None:
    machine = here(tmp_path)
    code = f"{HOLDS}; time.sleep(60)"
    with (
        subprocess.Popen([sys.executable, "-c", code, machine.lock_file], stdout=subprocess.PIPE) as holder,
        bench(tmp_path, machine=machine, clock=_Killing(holder, 300)) as it,
    ):
        assert holder.stdout is not None
        holder.stdout.readline()
        pass_gate(it)
        assert it.cloud.now == 300
    assert it.events() == ["wait", "lock", "go", "leave"]
    assert f"process {holder.pid}" in it.lines[0]


def test_a_holder_that_stays_is_said_and_nothing_is_stopped_under_it(tmp_path: Path) -> None:
    machine = here(tmp_path)
    code = f"{HOLDS}; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, machine.lock_file], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with (
            bench(tmp_path, Script(life=life("READY/TIMEOUT")), machine=machine) as it,
            pytest.raises(errors.TpuInUseError, match="a living process has it"),
        ):
            pass_gate(it)
        holder.kill()
    assert it.cloud.now == 1200
    assert it.cloud.calls == []


def test_an_unhealthy_tpu_vm_does_not_stop_itself(tmp_path: Path) -> None:
    with (
        bench(tmp_path, Script(life=life("READY/TIMEOUT")), machine=here(tmp_path)) as it,
        pytest.raises(errors.TpuUnhealthyError, match="podline tpu recover"),
    ):
        pass_gate(it)
    assert it.cloud.now == 1200
    assert it.cloud.calls == []


def test_an_announced_end_is_waited_out(tmp_path: Path) -> None:
    clock = TurnedClock(NOON)
    maintenance = Announcement(0, "maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", end=300)
    with (
        announcing(clock, [maintenance]) as address,
        bench(tmp_path, machine=here(tmp_path, metadata_address=address), clock=clock) as it,
    ):
        pass_gate(it)
        assert it.cloud.now == 300
    assert "TERMINATE_ON_HOST_MAINTENANCE" in it.lines[0]


class _Killing(TurnedClock):
    """Kills a process when it is turned past a time."""

    def __init__(self, process: subprocess.Popen[bytes], after: float) -> None:
        super().__init__(NOON)
        self._process, self._at = process, NOON + after

    def turn(self, seconds: float) -> None:
        super().turn(seconds)
        if self.now() >= self._at:
            self._process.kill()
            self._process.wait()


# Users that follow each other.


def test_the_next_user_waits_for_the_cool_down(tmp_path: Path) -> None:
    with bench(tmp_path) as it:
        pass_gate(it)
        pass_gate(it)
        assert it.cloud.now == LIMITS.cool_down
    assert it.events() == ["go", "leave", "wait", "go", "leave"]


def test_one_that_is_interrupted_while_it_waits_gives_its_turn_back(tmp_path: Path) -> None:
    class Interrupted(TurnedClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.now() == NOON + 60:
                raise KeyboardInterrupt

    with bench(tmp_path, Script(life=life("READY/TIMEOUT 300, READY/HEALTHY")), Interrupted(NOON)) as it:
        with pytest.raises(KeyboardInterrupt):
            pass_gate(it)
        pass_gate(it)
    assert it.events() == ["wait", "give up", "wait", "go", "leave"]


def test_a_project_that_is_barred_is_said_whatever_failed_before(tmp_path: Path) -> None:
    script = Script(
        life=life("READY/TIMEOUT"),
        starts=(Attempt(60, code=code_pb2.INTERNAL, message="no start"),),
        creates=(Attempt(60, life("READY/HEALTHY+PROJECT_ABUSE")),),
    )
    with bench(tmp_path, script) as it, pytest.raises(errors.TpuSetupError, match="Google reports abuse"):
        pass_gate(it)


def test_two_at_once_follow_each_other(tmp_path: Path) -> None:
    uses: list[tuple[float, float]] = []
    with bench(tmp_path) as it:

        def use() -> None:
            with it.admitted():
                began = it.clock.now()
                it.clock.sleep(200)
                uses.append((began, it.clock.now()))

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    uses.sort()
    assert len(uses) == 3
    for (_, ended), (began, _) in itertools.pairwise(uses):
        assert began >= ended + LIMITS.cool_down


def test_one_that_does_not_get_its_turn_is_told(tmp_path: Path) -> None:
    with (
        bench(tmp_path) as it,
        it.admitted(),
        pytest.raises(errors.TpuInUseError, match="another run on this machine has it"),
    ):
        pass_gate(it)


def test_a_node_on_which_something_hung_is_restarted_first(tmp_path: Path) -> None:
    with bench(tmp_path) as it:
        with pytest.raises(errors.HangError), it.admitted():
            raise errors.HangError("no progress for 900 s")
        pass_gate(it)
        it.clock.turn(3600)
        pass_gate(it)
    assert it.events() == ["go", "hang", "restart", "go", "leave", "go", "leave"]
    assert "its last use hung" in it.tpu_log.entries[2].what


def test_a_hang_that_a_restart_could_not_mend_is_not_forgotten(tmp_path: Path) -> None:
    with bench(tmp_path, Script(spot=True)) as it:
        with pytest.raises(errors.HangError), it.admitted():
            raise errors.HangError("no progress for 900 s")
        pass_gate(it)
    assert [verb for _, verb, _ in it.cloud.calls] == ["delete", "create"]


@pytest.mark.parametrize("error", [errors.DivergenceError("the loss is nan"), KeyboardInterrupt()])
def test_whatever_ends_a_use_gives_the_tpu_back(tmp_path: Path, error: BaseException) -> None:
    with bench(tmp_path) as it:
        with pytest.raises(type(error)), it.admitted():
            raise error
        pass_gate(it)
    assert it.events() == ["go", "leave", "wait", "go", "leave"]
    assert (str(error) or "KeyboardInterrupt") in it.tpu_log.entries[1].what
