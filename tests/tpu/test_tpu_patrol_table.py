"""The patrol's table: what a node, a request and a run amount to, and what the settings forbid."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud import tpu_v2
from standin.bench import SPEC, api_settings

from podline.settings.tpu_settings import MachineSettings, TpuSettings
from podline.tpu.node import GONE, IN_QUEUE, Node, QueuedResource, State
from podline.tpu.patrol import PatrolCase, Remedy, forbidden, node_case

HOUR = 3600.0


def settings(**changes: Any) -> TpuSettings:
    return TpuSettings(**{"node": "night", "api": api_settings("127.0.0.1:1"), "spec": SPEC, **changes})


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("used", [False, True, None])
@pytest.mark.parametrize("idle_for", [0.0, HOUR])
@pytest.mark.parametrize("fixed", ["", "spot", "queued", "slice"])
def test_a_node_is_touched_only_if_it_is_unused(state: State, used: bool | None, idle_for: float, fixed: str) -> None:
    node = Node(name="night", state=state, spot=fixed == "spot", hosts=4 if fixed == "slice" else 1)
    request = QueuedResource(name="night", state="ACTIVE") if fixed == "queued" else None
    remedy = node_case(node, request, settings(), used=used, idle_for=idle_for).do
    expected = Remedy.NOTHING
    if used is False and state in GONE:
        expected = Remedy.DELETE
    elif used is False and state is State.READY and idle_for == HOUR:
        expected = Remedy.DELETE if fixed else Remedy.STOP
    assert remedy is expected


def test_a_node_is_never_idle_if_the_settings_say_never() -> None:
    node = Node(name="night", state=State.READY)
    assert node_case(node, None, settings(idle_stop=0), used=False, idle_for=1e9) is PatrolCase.RESTING
    assert node_case(node, None, settings(idle_stop=1), used=False, idle_for=60) is PatrolCase.IDLE
    assert node_case(None, None, settings(), used=False, idle_for=0) is PatrolCase.OFF


@pytest.mark.parametrize("state", sorted(tpu_v2.QueuedResourceState.State.__members__))
def test_a_request_is_deleted_if_no_run_will_use_it(state: str) -> None:
    request, refused = QueuedResource(name="night", state=state), {"FAILED", "SUSPENDED", "STATE_UNSPECIFIED"}

    def remedy(used: bool, idle_for: float) -> Remedy:
        return node_case(None, request, settings(), used=used, idle_for=idle_for).do

    assert remedy(True, HOUR) is Remedy.NOTHING
    assert remedy(False, 0) is (Remedy.DELETE if state in refused else Remedy.NOTHING)
    assert remedy(False, HOUR) is (Remedy.DELETE if state in refused | IN_QUEUE else Remedy.NOTHING)


def test_what_the_settings_do_not_allow_is_not_done_and_says_why() -> None:
    repair = settings(patrol="repair")
    assert [forbidden(remedy, repair) for remedy in Remedy] == [""] * len(Remedy)
    told = settings()
    assert all("tpu.patrol is report" in forbidden(remedy, told) for remedy in Remedy if remedy is not Remedy.NOTHING)
    assert "tpu.spec" in forbidden(Remedy.DELETE, settings(patrol="repair", spec=None))
    here = settings(patrol="repair", machine=MachineSettings())
    assert "the node itself" in forbidden(Remedy.STOP, here)
    assert forbidden(Remedy.CANCEL, here) == ""
