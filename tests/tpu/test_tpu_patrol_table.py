"""The patrol's table: what a node, a request and a run amount to, and what the settings forbid."""

from __future__ import annotations

from typing import Any

import pytest
from standin.bench import SPEC, api_settings

from podline.tpu import patrol
from podline.tpu.node import Node, QueuedResource, QueueState, State
from podline.tpu.patrol import TABLE, Deed, PatrolCase, PatrolFinding, forbidden, node_case, request_case, run_case
from podline.tpu.policy import GONE
from podline.tpu_settings import MachineSettings, TpuSettings

HOUR = 3600.0


def settings(**changes: Any) -> TpuSettings:
    return TpuSettings(**{"node": "night", "api": api_settings("127.0.0.1:1"), "spec": SPEC, **changes})


def test_every_case_has_a_row_and_every_row_is_printed() -> None:
    assert set(TABLE) == set(PatrolCase)
    shown = patrol.explain(settings(idle_stop=90, patrol="repair"))
    assert all(case in shown and rule.why in shown for case, rule in TABLE.items())
    assert "tpu.idle_stop is 1 h 30 min; tpu.patrol is repair" in shown
    assert "tpu.idle_stop is never" in patrol.explain(settings(idle_stop=0))
    assert "tpu.idle_stop is" not in patrol.explain(None)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("idle_for", [0.0, HOUR])
@pytest.mark.parametrize("fixed", ["", "spot", "queued"])
def test_a_node_is_touched_only_if_it_is_ours_and_unused(state: State, used: bool, idle_for: float, fixed: str) -> None:
    node = Node(name="night", state=state, spot=fixed == "spot", queued_resource="night" if fixed == "queued" else "")
    deed = TABLE[node_case(node, settings(), used=used, idle_for=idle_for)].do
    expected = Deed.NOTHING
    if not used and state in GONE:
        expected = Deed.DELETE
    elif not used and state is State.READY and idle_for == HOUR:
        expected = Deed.DELETE if fixed else Deed.STOP
    assert deed is expected
    other = node.model_copy(update={"name": "other"})
    assert node_case(other, settings(), used=used, idle_for=idle_for) is PatrolCase.OTHERS


def test_a_node_is_never_idle_if_the_settings_say_never() -> None:
    node = Node(name="night", state=State.READY)
    assert node_case(node, settings(idle_stop=0), used=False, idle_for=1e9) is PatrolCase.RESTING
    assert node_case(node, settings(idle_stop=1), used=False, idle_for=60) is PatrolCase.IDLE
    assert node_case(None, settings(), used=False, idle_for=0) is PatrolCase.OFF


@pytest.mark.parametrize("state", list(QueueState))
def test_a_request_is_deleted_if_it_is_ours_and_nobody_will_use_it(state: QueueState) -> None:
    request = QueuedResource(name="night", state=state, nodes=("night",))
    waiting = {QueueState.CREATING, QueueState.ACCEPTED, QueueState.PROVISIONING, QueueState.WAITING_FOR_RESOURCES}
    refused = {QueueState.FAILED, QueueState.SUSPENDED, QueueState.STATE_UNSPECIFIED}

    def deed(used: bool, idle_for: float) -> Deed:
        return TABLE[request_case(request, settings(), used=used, idle_for=idle_for)].do

    assert deed(True, HOUR) is Deed.NOTHING
    assert deed(False, 0) is (Deed.DELETE if state in refused else Deed.NOTHING)
    assert deed(False, HOUR) is (Deed.DELETE if state in refused | waiting else Deed.NOTHING)
    other = QueuedResource(name="other", state=state, nodes=("other",))
    assert request_case(other, settings(), used=False, idle_for=HOUR) is PatrolCase.OTHERS


def test_a_run_is_gone_when_its_signs_of_life_stop_and_not_if_it_never_gave_any() -> None:
    assert run_case(None, 100, orphan=False) is PatrolCase.UNSEEN
    assert run_case(100, 100, orphan=False) is PatrolCase.ALIVE
    assert run_case(101, 100, orphan=False) is PatrolCase.SILENT
    assert run_case(101, 100, orphan=True) is PatrolCase.SILENT
    assert run_case(None, 100, orphan=True) is run_case(1, 100, orphan=True) is PatrolCase.ORPHAN


def test_what_the_settings_do_not_allow_is_not_done_and_says_why() -> None:
    repair = settings(patrol="repair")
    assert [forbidden(deed, repair) for deed in Deed] == [""] * len(Deed)
    told = settings()
    assert all("tpu.patrol is report" in forbidden(deed, told) for deed in Deed if deed is not Deed.NOTHING)
    assert "no spec" in forbidden(Deed.DELETE, settings(patrol="repair", spec=None))
    here = settings(patrol="repair", machine=MachineSettings())
    assert "the node itself" in forbidden(Deed.STOP, here)
    assert forbidden(Deed.REMOVE, here) == ""


def test_a_finding_tells_what_was_seen_what_is_to_be_done_and_what_was() -> None:
    finding = PatrolFinding(what="node night", seen="READY, HEALTHY", case=PatrolCase.IDLE, done="stopped")
    assert finding.row() == {
        "what": "node night",
        "seen": "READY, HEALTHY",
        "to do": "stop it",
        "because": "it costs money; the next run starts it",
        "done": "stopped",
    }
    assert (
        str(finding) == "node night: READY, HEALTHY; stop it, because it costs money; the next run starts it (stopped)"
    )
