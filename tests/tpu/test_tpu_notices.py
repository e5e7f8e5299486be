"""The metadata server's announcements, from a real one over HTTP."""

from __future__ import annotations

import pytest
from standin.servers import announcing
from standin.timeline import Announcement
from turned_clock import TurnedClock

from podline.settings.tpu_settings import MachineSettings
from podline.tpu.notices import end_announced

UPCOMING = (
    '{"can_reschedule": "false", "latest_window_start_time": "2027-01-15T09:00:00Z", "maintenance_status": "PENDING", '
    '"type": "SCHEDULED", "window_end_time": "2027-01-15T12:00:00Z", "window_start_time": "2027-01-15T08:10:00Z"}'
)
CAMEL = '{"type":"SCHEDULED","windowStartTime":"2027-01-15T08:10:00Z","maintenanceStatus":"PENDING"}'
EIGHT = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


def heard(*announcements: Announcement, flavor: str = "Google", now: float = EIGHT) -> str:
    """What is announced five minutes ahead."""
    with announcing(TurnedClock(now), announcements, flavor) as address:
        return end_announced(MachineSettings(metadata_address=address, metadata_timeout=5.0), now, 300)


def test_announcements_come_and_go_with_the_time() -> None:
    assert heard() == ""
    assert heard(Announcement(0, "preempted", "TRUE")) == "the machine is being preempted"
    assert heard(Announcement(10, "preempted", "TRUE")) == ""
    event = Announcement(0, "maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    assert heard(event) == "maintenance of the host: TERMINATE_ON_HOST_MAINTENANCE"


@pytest.mark.parametrize(
    ("body", "now", "told"),
    [
        (UPCOMING, EIGHT, ""),
        (UPCOMING, EIGHT + 300, "scheduled maintenance starts within 300 s"),
        (CAMEL, EIGHT + 300, "scheduled maintenance starts within 300 s"),
        ('{"maintenance_status": "ONGOING"}', EIGHT, "announced maintenance has begun"),
        ('{ "error": "no notifications have been received yet" }', EIGHT, ""),
        ("nonsense", EIGHT, ""),
        ("[]", EIGHT, ""),
    ],
)
def test_an_upcoming_maintenance_counts_when_it_is_near_or_under_way(body: str, now: float, told: str) -> None:
    assert heard(Announcement(0, "upcoming-maintenance", body), now=now) == told


@pytest.mark.parametrize("failing", ["upcoming-maintenance", "maintenance-event"])
def test_a_key_that_fails_hides_no_other_notice(failing: str) -> None:
    preempted = Announcement(0, "preempted", "TRUE")
    assert heard(preempted, Announcement(0, failing, "fails")) == "the machine is being preempted"
    near = Announcement(0, "upcoming-maintenance", UPCOMING)
    assert heard(Announcement(0, "preempted", "fails"), near, now=EIGHT + 300) == (
        "scheduled maintenance starts within 300 s"
    )


def test_no_metadata_server_announces_nothing() -> None:
    assert end_announced(MachineSettings(metadata_address="127.0.0.1:9"), EIGHT, 300) == ""
    assert heard(Announcement(0, "preempted", "TRUE"), flavor="Somebody") == ""
