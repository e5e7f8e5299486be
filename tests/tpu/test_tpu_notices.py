"""The metadata server's announcements, from a real one over HTTP."""

from __future__ import annotations

import pytest
from standin.servers import announcing
from standin.timeline import Announcement
from turned_clock import TurnedClock

from podline.tpu import notices
from podline.tpu.notices import Maintenance, Notices
from podline.tpu_settings import MachineSettings

UPCOMING = (
    '{"can_reschedule": "false", "latest_window_start_time": "2027-01-15T09:00:00Z", "maintenance_status": "PENDING", '
    '"type": "SCHEDULED", "window_end_time": "2027-01-15T12:00:00Z", "window_start_time": "2027-01-15T08:10:00Z"}'
)
CAMEL = '{"type":"SCHEDULED","windowStartTime":"2027-01-15T08:10:00Z","maintenanceStatus":"PENDING"}'
EIGHT = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


def test_nothing_is_announced() -> None:
    with announcing(TurnedClock()) as address:
        heard = notices.read(address, 5.0)
    assert heard == Notices()
    assert heard is not None
    assert heard.end_announced(EIGHT, 300) == ""


def test_announcements_come_and_go_with_the_time() -> None:
    clock = TurnedClock(EIGHT)
    announcements = [
        Announcement(10, "preempted", "TRUE", end=20),
        Announcement(30, "maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", end=40),
    ]
    with announcing(clock, announcements) as address:
        machine = MachineSettings(metadata_address=address)
        heard = []
        for _ in range(5):
            heard.append(notices.end_announced(machine, clock.now(), 300))
            clock.turn(10)
    assert heard == [
        "",
        "the machine is being preempted",
        "",
        "maintenance of the host: TERMINATE_ON_HOST_MAINTENANCE",
        "",
    ]


@pytest.mark.parametrize("body", [UPCOMING, CAMEL])
def test_an_upcoming_maintenance_counts_when_it_is_near(body: str) -> None:
    with announcing(TurnedClock(), [Announcement(0, "upcoming-maintenance", body)]) as address:
        heard = notices.read(address, 5.0)
    assert heard is not None
    assert heard.upcoming == Maintenance(starts=EIGHT + 600, kind="SCHEDULED")
    assert heard.end_announced(EIGHT, 300) == ""
    assert heard.end_announced(EIGHT + 300, 300) == "scheduled maintenance starts within 300 s"


def test_a_maintenance_under_way_counts_whenever_it_was_to_start() -> None:
    heard = Notices(upcoming=Maintenance(ongoing=True))
    assert heard.end_announced(0, 300) == "announced maintenance is under way"


@pytest.mark.parametrize("body", ['{ "error": "no notifications have been received yet" }', "nonsense", "[]", ""])
def test_what_is_no_announcement_announces_nothing(body: str) -> None:
    with announcing(TurnedClock(), [Announcement(0, "upcoming-maintenance", body)]) as address:
        assert notices.read(address, 5.0) == Notices()


def test_no_metadata_server_is_nothing_known() -> None:
    assert notices.read("127.0.0.1:9", 1.0) is None
    with announcing(TurnedClock(), [Announcement(0, "preempted", "TRUE")], flavor="Somebody") as address:
        assert notices.read(address, 5.0) is None
