"""The gate end to end, over gRPC, on a clock that the waits themselves turn: what it does, and how long it takes."""

from __future__ import annotations

import fcntl
import struct
from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2
from standin.bench import NOON, SPEC, Bench, bench
from standin.cloud import NODE
from standin.servers import announcing
from standin.timeline import EXPIRED_MESSAGE, NO_CAPACITY, NO_QUOTA, Announcement, Attempt, Outage, Script, life
from turned_clock import TurnedClock

from podline.base import errors
from podline.settings.tpu_settings import Limits, MachineSettings
from podline.tpu.node import Health, State
from podline.tpu.tpu_log import TpuLog

LIMITS = Limits()
QUEUED = SPEC.model_copy(update={"queued": True})
HERE = MachineSettings(lock_file="/nowhere/libtpu_lockfile", metadata_address="127.0.0.1:9")


def pass_gate(it: Bench) -> None:
    """Goes through, and sees that TensorFlow would have found what it needs."""
    with it.admitted():
        node = it.api.node(NODE)
        assert node is not None
        assert (node.state, node.health) == (State.READY, Health.HEALTHY)


ILL, TENSORFLOW_ILL = life("READY/TIMEOUT"), "READY/UNHEALTHY_TENSORFLOW"
PREEMPTED = life("PREEMPTED")
SECOND_RESTART_FAILS = (Attempt(60, ILL), Attempt(60, code=code_pb2.INTERNAL, message="the second restart fails"))
AWAY = Script(life=ILL, outages=(Outage(1235, 1300), Outage(1310, 1900)))
LOST_ANSWERS = Script(life=ILL, outages=(Outage(1195, 1205, lost=True), Outage(1235, 1245, lost=True)))
LATE_QUOTA = Script(life=PREEMPTED, creates=(NO_QUOTA, NO_QUOTA, Attempt(120)))
CANNOT_STOP = Attempt(code=code_pb2.INVALID_ARGUMENT, message="no stop for this type", at_once=True)
LADDER = "wait restart wait restart wait recreate go leave"


@pytest.mark.parametrize(
    ("script", "changes", "events", "calls", "took"),
    [
        (Script(), {}, "go leave", "", 0),
        (Script(life=life(f"{TENSORFLOW_ILL} 600, READY/HEALTHY")), {}, "wait go leave", "", 600),
        # Twenty minutes of patience; 30 s for the stop, 10 s in between, 60 s for the start.
        (Script(life=life(TENSORFLOW_ILL)), {}, "wait restart go leave", "stop start", 1300),
        (Script(life=ILL, starts=SECOND_RESTART_FAILS), {}, LADDER, "stop start stop start delete create", 2230),
        # cloud_tpu.proto, v2: StopNode "is only available with single TPU nodes". "Manage TPU Spot VMs": they cannot be
        # restarted, and are recreated. Such nodes are not asked to stop.
        (Script(life=ILL, spot=True), {}, "wait recreate go leave", "delete create", 1400),
        (Script(life=ILL, hosts=4), {}, "wait recreate go leave", "delete create", 1400),
        # A refusal of another kind than the stand-in's counts as a repair that did not work.
        (Script(life=ILL, stops=(CANNOT_STOP,)), {}, LADDER, "stop stop delete create", 1460),
        (Script(life=PREEMPTED), {}, "replace go leave", "delete create", 200),
        (Script(life=life("STOPPED")), {}, "restart go leave", "start", 60),
        (Script(life=None), {}, "recreate go leave", "create", 120),
        (Script(life=life("READY/HEALTHY+HBM_OUT_OF_MEMORY")), {}, "wait go leave", "", LIMITS.symptom_age),
        (Script(outages=(Outage(0, 600),)), {}, "wait go leave", "", 600),
        (AWAY, {}, "wait wait restart go leave", "stop start", 1900),
        (LOST_ANSWERS, {}, "wait wait restart go leave", "stop start", 1330),
        (LATE_QUOTA, {}, "wait replace go leave", "delete create create create", 260),
        (Script(life=None, turns=(Attempt(3600),)), {"spec": QUEUED}, "wait recreate go leave", "queue", 3600),
    ],
)
def test_it_waits_and_repairs_until_the_node_is_well(
    tmp_path: Path, script: Script, changes: dict[str, Any], events: str, calls: str, took: float
) -> None:
    with bench(tmp_path, script, **changes) as it:
        pass_gate(it)
        assert (" ".join(it.events()), " ".join(it.cloud.calls)) == (events, calls)
        assert it.cloud.now == pytest.approx(took, abs=60 if "queue" in calls else 0.1)


def refusing(code: int, message: str) -> Script:
    return Script(outages=(Outage(0, 9999, code, message),))


NEVER_WELL = Script(life=ILL, starts=(Attempt(60, ILL),), creates=(Attempt(60, ILL),))
REFUSED_REQUEST = Script(life=None, turns=(Attempt(60, code=code_pb2.RESOURCE_EXHAUSTED, message="no room"),))


@pytest.mark.parametrize(
    ("script", "changes", "error", "words", "took"),
    [
        (NEVER_WELL, {}, errors.TpuUnhealthyError, "READY, TIMEOUT.*2 of 2 restarts, 2 of 2 new nodes", None),
        (Script(life=PREEMPTED, creates=(Attempt(60, PREEMPTED),)), {}, errors.TpuGoneError, "5 of 5 for pree", None),
        (Script(outages=(Outage(0, 9999),)), {}, errors.TpuApiError, "unavailable; no answer for 20 min", 1200),
        (Script(life=ILL, outages=(Outage(1235, 1e9),)), {}, errors.TpuApiError, "^start node night: ", 2440),
        # What a wait does not mend is said at once.
        (refusing(code_pb2.UNAUTHENTICATED, EXPIRED_MESSAGE), {}, errors.CredentialsError, ".", 0),
        (refusing(code_pb2.PERMISSION_DENIED, "no"), {}, errors.TpuSetupError, ".", 0),
        (Script(life=None, creates=(NO_QUOTA,)), {}, errors.QuotaError, ".", 0),
        # A quota that the node just deleted may still use up: five minutes, in polls.
        (Script(life=PREEMPTED, creates=(NO_QUOTA,)), {}, errors.QuotaError, ".", 20 + 60 + 300),
        (Script(life=None, creates=(NO_CAPACITY,)), {}, errors.TpuCapacityError, ".", 60),
        (Script(life=life("READY/HEALTHY+PROJECT_ABUSE")), {}, errors.TpuSetupError, "Google reports abuse", 0),
        (REFUSED_REQUEST, {"spec": QUEUED}, errors.TpuCapacityError, "the request is FAILED no room", None),
        (Script(life=PREEMPTED), {"spec": None}, errors.TpuGoneError, "tpu.spec is not set", 0),
        (Script(life=ILL), {"machine": HERE}, errors.TpuUnhealthyError, "podline tpu recover", 1200),
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
    assert "machine" not in changes or it.cloud.calls == []


def test_no_capacity_uses_up_no_budget_and_a_place_in_the_queue_is_kept_for_the_next_attempt(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=None, creates=(NO_CAPACITY, NO_CAPACITY, NO_CAPACITY, Attempt(60)))) as it:
        for _ in range(3):
            with pytest.raises(errors.TpuCapacityError):
                pass_gate(it)
        pass_gate(it)
    assert it.tpu_log.tried().recreations == 1
    with bench(tmp_path, Script(life=None, turns=(Attempt(30_000),)), spec=QUEUED) as it:
        with pytest.raises(errors.TpuCapacityError, match="still WAITING_FOR_RESOURCES after 6 h"):
            pass_gate(it)
        pass_gate(it)
    assert it.cloud.calls == ["queue"]


def test_a_store_that_is_away_at_the_end_of_a_use_or_of_the_gate_keeps_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors are kept, as a task does between its attempts; their tracebacks must not hold the lock's file."""
    kept: list[BaseException] = []
    with bench(tmp_path, Script()) as it:

        def away(*_rest: Any, **_more: Any) -> None:
            raise errors.StoreUnavailableError("the bucket does not answer")

        with it.admitted():
            monkeypatch.setattr(TpuLog, "_change", away)
        assert any("the bucket does not answer" in line for line in it.lines)
        with pytest.raises(errors.StoreUnavailableError) as caught, it.admitted():
            pass  # the log of the cool-down cannot be written either
        kept.append(caught.value)
        monkeypatch.undo()
        with it.admitted():
            assert it.events()[-1] == "go"
        assert str(kept[0]) == "the bucket does not answer"


def test_a_preempted_node_of_the_queue_goes_with_its_request(tmp_path: Path) -> None:
    turns = (Attempt(60, life("READY/HEALTHY 600, PREEMPTED")), Attempt(60))
    with bench(tmp_path, Script(life=None, turns=turns), spec=QUEUED) as it:
        pass_gate(it)
        it.clock.turn(3600)
        pass_gate(it)
    assert it.cloud.calls == ["queue", "unqueue", "queue"]


def test_a_stale_lock_is_removed_and_an_announced_end_is_waited_out(tmp_path: Path) -> None:
    clock = TurnedClock(NOON)
    (tmp_path / "libtpu_lockfile").touch()
    maintenance = Announcement(0, "maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", end=300)
    with announcing(clock, [maintenance]) as address:
        machine = MachineSettings(lock_file=str(tmp_path / "libtpu_lockfile"), metadata_address=address)
        with bench(tmp_path, machine=machine, clock=clock) as it:
            pass_gate(it)
            assert it.cloud.now == 300
    assert it.events() == ["lock", "wait", "go", "leave"]
    assert "TERMINATE_ON_HOST_MAINTENANCE" in it.lines[1]


def test_a_held_lock_is_waited_for_without_a_repair(tmp_path: Path) -> None:
    file = tmp_path / "libtpu_lockfile"
    machine = MachineSettings(lock_file=str(file), metadata_address="127.0.0.1:9")
    with file.open("w") as held:

        class Released(TurnedClock):
            def sleep(self, seconds: float) -> None:
                super().sleep(seconds)
                if self.now() >= NOON + 300:
                    held.close()

        # A lock of this descriptor, which this process's own questions see as another's.
        fcntl.fcntl(held, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        with bench(tmp_path, Script(life=ILL), Released(NOON), machine=machine) as it:
            with pytest.raises(errors.TpuUnhealthyError):
                pass_gate(it)
            assert it.cloud.calls == []
    assert "a living process uses it" in it.tpu_log.entries[0].what


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
        pytest.raises(errors.TpuInUseError, match="another run on this machine uses it"),
    ):
        pass_gate(it)


@pytest.mark.parametrize(
    ("changes", "repair", "why"),
    [({}, "restart", "its last use hung"), ({"machine": HERE}, "wait", "its last user has just left")],
)
def test_a_node_on_which_something_hung_is_restarted_first_except_from_itself(
    tmp_path: Path, changes: dict[str, Any], repair: str, why: str
) -> None:
    with bench(tmp_path, **changes) as it:
        with pytest.raises(errors.HangError), it.admitted():
            raise errors.HangError("no progress for 900 s")
        pass_gate(it)
        it.clock.turn(3600)
        pass_gate(it)
    assert it.events() == ["go", "hang", repair, "go", "leave", "go", "leave"]
    assert why in it.tpu_log.entries[2].what


@pytest.mark.parametrize("error", [errors.DivergenceError("the loss is nan"), KeyboardInterrupt()])
def test_whatever_ends_a_use_gives_the_tpu_back_and_the_next_user_waits(tmp_path: Path, error: BaseException) -> None:
    with bench(tmp_path) as it:
        with pytest.raises(type(error)), it.admitted():
            raise error
        pass_gate(it)
        assert it.cloud.now == LIMITS.cool_down
    assert it.events() == ["go", "leave", "wait", "go", "leave"]
    assert (str(error) or "KeyboardInterrupt") in it.tpu_log.entries[1].what
