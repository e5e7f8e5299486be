"""The gate end to end, over gRPC, on a clock that the waits themselves turn: what it does, and how long it takes."""

from __future__ import annotations

import subprocess
import sys
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


WAITS, ILL = "wait restart go leave", "READY/TIMEOUT"
ILL_AGAIN = (Attempt(60, life(ILL)), Attempt(60, code=code_pb2.INTERNAL, message="the second restart fails"))


@pytest.mark.parametrize(
    ("script", "changes", "events", "calls", "took"),
    [
        (Script(), {}, "go leave", "", 0),
        (Script(life=life("READY/UNHEALTHY_TENSORFLOW 600, READY/HEALTHY")), {}, "wait go leave", "", 600),
        # Twenty minutes of patience; 30 s for the stop, 10 s in between, 60 s for the start.
        (Script(life=life("READY/UNHEALTHY_TENSORFLOW")), {}, WAITS, "stop start", 1300),
        (
            Script(life=life(ILL), starts=ILL_AGAIN),
            {},
            "wait restart wait restart wait recreate go leave",
            "stop start stop start delete create",
            2230,
        ),
        (
            Script(life=life(ILL), spot=True),
            {},
            "wait restart wait restart wait recreate go leave",
            "delete create",
            1460,
        ),
        (Script(life=life("PREEMPTED")), {}, "replace go leave", "delete create", 200),
        (Script(life=life("STOPPED")), {}, "restart go leave", "start", 60),
        (Script(life=None), {}, "recreate go leave", "create", 120),
        (Script(life=life("READY/HEALTHY+HBM_OUT_OF_MEMORY")), {}, "wait go leave", "", LIMITS.symptom_age),
        (Script(outages=(Outage(0, 600),)), {}, "wait go leave", "", 600),
        (
            Script(life=life(ILL), outages=(Outage(1235, 1300), Outage(1310, 1900))),
            {},
            "wait wait restart go leave",
            "stop start",
            1900,
        ),
        (
            Script(life=life(ILL), outages=(Outage(1195, 1205, lost=True), Outage(1235, 1245, lost=True))),
            {},
            "wait wait restart go leave",
            "stop start",
            1330,
        ),
        (
            Script(life=life("PREEMPTED"), creates=(NO_QUOTA, NO_QUOTA, Attempt(120))),
            {},
            "wait replace go leave",
            "delete create create create",
            260,
        ),
        (Script(life=None, turns=(Attempt(3600),)), {"spec": QUEUED}, "wait recreate go leave", "queue", 3600),
    ],
)
def test_it_waits_and_repairs_until_the_node_is_well(
    tmp_path: Path, script: Script, changes: dict[str, Any], events: str, calls: str, took: float
) -> None:
    with bench(tmp_path, script, **changes) as it:
        pass_gate(it)
        assert (" ".join(it.events()), " ".join(verb for _at, verb, _node in it.cloud.calls)) == (events, calls)
        assert it.cloud.now == pytest.approx(took, abs=60 if "queue" in calls else 0.1)


@pytest.mark.parametrize(
    ("script", "changes", "error", "words", "took"),
    [
        (
            Script(life=life(ILL), starts=(Attempt(60, life(ILL)),), creates=(Attempt(60, life(ILL)),)),
            {},
            errors.TpuUnhealthyError,
            "node night: READY, TIMEOUT.*2 of 2 restarts, 2 of 2 new nodes",
            None,
        ),
        (
            Script(life=life("PREEMPTED"), creates=(Attempt(60, life("PREEMPTED")),)),
            {},
            errors.TpuGoneError,
            "5 of 5 for preempted ones",
            None,
        ),
        (Script(outages=(Outage(0, 9999),)), {}, errors.TpuApiError, "unavailable; no answer for 20 min", 1200),
        (
            Script(life=life(ILL), outages=(Outage(1235, 1e9),)),
            {},
            errors.TpuApiError,
            "^start node night: The service is currently unavailable; no answer for 20 min$",
            2440,
        ),
        # What a wait does not mend is said at once.
        (
            Script(outages=(Outage(0, 9999, code_pb2.UNAUTHENTICATED, EXPIRED_MESSAGE),)),
            {},
            errors.CredentialsError,
            ".",
            0,
        ),
        (Script(outages=(Outage(0, 9999, code_pb2.PERMISSION_DENIED, "no"),)), {}, errors.TpuSetupError, ".", 0),
        (Script(life=None, creates=(NO_QUOTA,)), {}, errors.QuotaError, ".", 0),
        # A quota that the node just deleted may still use up: five minutes, in polls.
        (Script(life=life("PREEMPTED"), creates=(NO_QUOTA,)), {}, errors.QuotaError, ".", 20 + 60 + 300),
        (Script(life=None, creates=(NO_CAPACITY,)), {}, errors.TpuCapacityError, ".", 60),
        (Script(life=life("READY/HEALTHY+PROJECT_ABUSE")), {}, errors.TpuSetupError, "Google reports abuse", 0),
        (
            Script(life=None, turns=(Attempt(60, code=code_pb2.RESOURCE_EXHAUSTED, message="no room"),)),
            {"spec": QUEUED},
            errors.TpuCapacityError,
            "the request is FAILED no room",
            None,
        ),
        (Script(life=life("PREEMPTED")), {"spec": None}, errors.TpuGoneError, "the settings have no spec", 0),
    ],
)
def test_it_gives_up_in_one_line_that_is_also_in_the_log(
    tmp_path: Path,
    script: Script,
    changes: dict[str, Any],
    error: type[errors.PodlineError],
    words: str,
    took: float | None,
) -> None:
    with bench(tmp_path, script, **changes) as it, pytest.raises(error, match=words) as caught:
        pass_gate(it)
    assert type(caught.value) is error
    assert took in (None, it.cloud.now)
    assert it.events()[-1] == "give up"
    assert it.tpu_log.entries[-1].what == str(caught.value)


def test_budgets_are_the_runs_and_not_the_attempts(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=life(ILL))) as it:
        for _ in range(2):
            it.tpu_log.tell(NOON - 9000, Event.RESTART, "earlier")
        pass_gate(it)
    assert it.events() == ["restart", "restart", "wait", "recreate", "go", "leave"]


def test_no_capacity_uses_up_no_budget(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=None, creates=(NO_CAPACITY, NO_CAPACITY, NO_CAPACITY, Attempt(60)))) as it:
        for _ in range(3):
            with pytest.raises(errors.TpuCapacityError):
                pass_gate(it)
        pass_gate(it)
    assert it.tpu_log.tried().recreations == 1


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


# On the TPU VM itself.


def here(tmp_path: Path, **changes: Any) -> MachineSettings:
    return MachineSettings(
        lock_file=str(tmp_path / "libtpu_lockfile"), **{"metadata_address": "127.0.0.1:9", **changes}
    )


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


@pytest.mark.parametrize("error", [errors.DivergenceError("the loss is nan"), KeyboardInterrupt()])
def test_whatever_ends_a_use_gives_the_tpu_back_and_the_next_user_waits(tmp_path: Path, error: BaseException) -> None:
    with bench(tmp_path) as it:
        with pytest.raises(type(error)), it.admitted():
            raise error
        pass_gate(it)
        assert it.cloud.now == LIMITS.cool_down
    assert it.events() == ["go", "leave", "wait", "go", "leave"]
    assert (str(error) or "KeyboardInterrupt") in it.tpu_log.entries[1].what
