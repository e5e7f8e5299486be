"""What a node and its API can do to a run, end to end: it ends as if nothing had been, or says why not in a line."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc import code_pb2
from standin.timeline import EXPIRED_MESSAGE, NO_QUOTA, Attempt, Outage, Script, life

from podline import errors

pytestmark = pytest.mark.slow


def test_unhealthy_at_the_start_is_waited_for(night: Any) -> None:
    with night(Script(life=life("READY/UNHEALTHY_TENSORFLOW 600, READY/HEALTHY"))) as it:
        it.run()
    assert it.events == ["wait", "go", "leave"]
    assert (it.trained, it.verbs()) == (1, [])
    assert it.ended_well()


def test_unhealthy_in_the_middle_is_left_with_a_checkpoint_restarted_and_gone_on_with(night: Any) -> None:
    with night(Script(life=life("READY/HEALTHY 60, READY/UNHEALTHY_TENSORFLOW"))) as it:
        it.run()
    assert it.events == ["go", "leave", "wait", "restart", "go", "leave"]
    assert (it.trained, it.verbs()) == (2, ["stop", "start"])
    assert any("UNHEALTHY_TENSORFLOW" in line and "trying again" in line for line in it.lines)
    assert it.ended_well()


def test_under_maintenance_by_the_api_is_left_with_a_checkpoint_and_waited_for(night: Any) -> None:
    with night(Script(life=life("READY/HEALTHY 60, READY/UNHEALTHY_MAINTENANCE 600, READY/HEALTHY"))) as it:
        it.run()
    assert it.events == ["go", "leave", "wait", "go", "leave"]
    assert (it.trained, it.verbs()) == (2, [])
    assert "it is under maintenance and goes on afterwards" in it.told[2]["what"]
    assert it.ended_well()


def test_a_node_that_google_repairs_is_left_at_once_and_waited_for(night: Any) -> None:
    with night(Script(life=life("READY/HEALTHY 110, REPAIRING 600, READY/HEALTHY"))) as it:
        it.run()
    assert it.events == ["go", "leave", "wait", "go", "leave"]
    assert (it.trained, it.verbs()) == (2, [])
    assert it.ended_well()


def test_a_preemption_without_notice_is_gone_on_with_on_a_new_node(night: Any) -> None:
    with night(Script(life=life("READY/HEALTHY 110, PREEMPTED"))) as it:
        it.run()
    assert it.events == ["go", "leave", "replace", "go", "leave"]
    assert (it.trained, it.verbs()) == (2, ["delete", "create"])
    assert it.ended_well()


def test_a_quota_that_is_not_free_at_once_is_waited_for(night: Any) -> None:
    creates = (NO_QUOTA, NO_QUOTA, Attempt(120))
    with night(Script(life=life("READY/HEALTHY 110, PREEMPTED"), creates=creates)) as it:
        it.run()
    assert it.verbs() == ["delete", "create", "create", "create"]
    assert "the quota of the deleted node is not free yet" in [entry["what"] for entry in it.told]
    assert it.ended_well()


def test_a_quota_that_is_used_up_when_a_new_node_is_needed_fails_in_one_line(night: Any) -> None:
    with (
        night(Script(life=life("READY/HEALTHY 110, PREEMPTED"), creates=(NO_QUOTA,))) as it,
        pytest.raises(errors.QuotaError, match=r"TPUV4PodPerProjectPerZone.*ask for more quota"),
    ):
        it.run()
    assert it.trained == 1
    assert it.events == ["go", "leave", "wait", "give up"]
    assert it.failed_with("ask for more quota")


def test_a_hang_on_a_node_that_says_healthy_restarts_it(night: Any) -> None:
    with night() as it:
        (it.root / "at-6").write_text("hang")
        it.run()
    assert it.events == ["go", "hang", "restart", "go", "leave"]
    assert (it.trained, it.verbs()) == (2, ["stop", "start"])
    assert it.ended_well()


def test_a_node_that_never_gets_well_fails_in_one_line_when_all_was_tried(night: Any) -> None:
    ill = life("READY/UNHEALTHY_TENSORFLOW")
    with (
        night(Script(life=ill, starts=(Attempt(60, ill),), creates=(Attempt(120, ill),))) as it,
        pytest.raises(errors.TpuUnhealthyError),
    ):
        it.run()
    assert it.trained == 0
    assert it.verbs() == ["stop", "start"] * 2 + ["delete", "create"] * 2, "once, however often it is tried"
    assert it.failed_with("tried: 2 of 2 restarts, 2 of 2 new nodes")


def test_an_api_that_is_away_for_ten_minutes_ends_no_training(night: Any) -> None:
    with night(Script(outages=(Outage(60, 660),))) as it:
        it.run()
    assert (it.trained, it.events) == (1, ["go", "leave"])
    assert any("the TPU's health is not known, and the training goes on" in line for line in it.lines)
    assert it.ended_well()


def test_an_api_that_is_away_for_ten_minutes_is_waited_for_before_a_training(night: Any) -> None:
    with night(Script(outages=(Outage(0, 600),))) as it:
        it.run()
    assert (it.trained, it.events) == (1, ["wait", "go", "leave"])
    assert it.told[0]["took"] == 600
    assert it.ended_well()


def test_credentials_that_have_expired_fail_at_once_in_one_line(night: Any) -> None:
    script = Script(outages=(Outage(0, 1e9, code_pb2.UNAUTHENTICATED, EXPIRED_MESSAGE),))
    with night(script) as it, pytest.raises(errors.CredentialsError, match="log in again"):
        it.run()
    assert (it.trained, it.events) == (0, ["give up"])
    assert it.failed_with("log in again")


def test_credentials_that_expire_in_the_middle_end_no_training(night: Any) -> None:
    script = Script(outages=(Outage(60, 1e9, code_pb2.UNAUTHENTICATED, EXPIRED_MESSAGE),))
    with night(script) as it:
        it.run()
    assert (it.trained, it.events) == (1, ["go", "leave"])
    assert it.ended_well()


def test_a_label_out_of_range_fails_at_once_and_restarts_nothing(night: Any) -> None:
    with night() as it:
        label = "InvalidArgumentError: Received a label value of 10 which is outside the valid range of [0, 10)"
        (it.root / "at-6").write_text(label)
        with pytest.raises(errors.ArtifactError, match="a label that the model has no class for"):
            it.run()
        assert it.clock.now() < 1_800_000_200
    assert (it.trained, it.verbs()) == (1, [])
    assert it.events == ["go", "leave"]
    assert it.failed_with("a label that the model has no class for")


def test_a_bad_batch_size_fails_at_once_and_restarts_nothing(night: Any) -> None:
    with night() as it:
        hbm = "ResourceExhaustedError: Ran out of memory in memory space hbm. Used 17.2G of 15.5G hbm."
        (it.root / "at-0").write_text(hbm)
        with pytest.raises(errors.SettingsError, match="make batch_size smaller"):
            it.run()
    assert (it.trained, it.verbs()) == (1, [])
    assert it.failed_with("make batch_size smaller")
