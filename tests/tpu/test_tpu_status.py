"""What is shown to people: the status at a glance, the TPU log as a table, stretches of time in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from standin.bench import NOON, bench
from standin.servers import announcing
from standin.timeline import Announcement, Outage, Script, life
from turned_clock import TurnedClock

from podline.tpu.clock import in_words
from podline.tpu.status import status
from podline.tpu.tpu_log import Event, TpuLog, TpuLogEntry, Tried
from podline.tpu_settings import MachineSettings


def test_everything_at_a_glance_and_nothing_touched(tmp_path: Path) -> None:
    clock = TurnedClock(NOON)
    with announcing(clock, [Announcement(0, "preempted", "TRUE")]) as address:
        machine = MachineSettings(lock_file=str(tmp_path / "libtpu_lockfile"), devices=(), metadata_address=address)
        Path(machine.lock_file).touch()
        script = Script(life=life("READY/TIMEOUT+LOW_MEMORY 40, READY/UNHEALTHY_TENSORFLOW+HBM_OUT_OF_MEMORY"))
        with bench(tmp_path, script, clock, machine=machine) as it:
            clock.turn(190)
            shown = str(status(it.settings, it.api, clock)).splitlines()
    assert shown == [
        "node            night: READY (v4-8, tpu-vm-tf-2.20.0-pjrt)",
        "health          UNHEALTHY_TENSORFLOW (night says UNHEALTHY_TENSORFLOW)",
        "symptoms        HBM_OUT_OF_MEMORY 2 min ago, LOW_MEMORY 3 min ago",
        f"lock            stale: {machine.lock_file}",
        "announced       the machine is being preempted",
        "reservation     free",
        "the gate would  wait: its runtime is not healthy",
    ]
    assert Path(machine.lock_file).exists()
    assert list(tmp_path.iterdir()) == [Path(machine.lock_file)]


def test_who_uses_it_and_the_cool_down_afterwards(tmp_path: Path) -> None:
    with bench(tmp_path) as it:
        with it.admitted():
            seen = status(it.settings, it.api, it.clock)
            assert "\nlease" not in str(seen), "no Prefect server was asked"
            shown = str(seen.model_copy(update={"lease": "flow run the night of the 5th"}))
            assert "\nlease           flow run the night of the 5th\n" in shown
            assert "reservation     process" in shown
            assert "the gate would  wait: another run on this machine has it" in shown
        it.clock.turn(15)
        shown = str(status(it.settings, it.api, it.clock))
    assert "reservation     free, cooling down for 45 s" in shown
    assert "the gate would  wait: its last user has only just left" in shown


def test_no_node_and_an_api_that_is_away(tmp_path: Path) -> None:
    with bench(tmp_path, Script(life=None, outages=(Outage(10, 20),))) as it:
        assert "node            night: there is none" in str(status(it.settings, it.api, it.clock))
        it.clock.turn(10)
        shown = str(status(it.settings, it.api, it.clock))
    assert "night: node night: The service is currently unavailable" in shown
    assert "the gate would" not in shown


def test_a_story_is_a_table_in_the_order_of_time_and_its_waits_run_together() -> None:
    lines: list[str] = []
    tpu_log = TpuLog(log=lines.append)
    tpu_log.waited(NOON, "its runtime is not healthy", 30)
    tpu_log.waited(NOON + 30, "its runtime is not healthy", 30)
    tpu_log.waited(NOON + 60, "the API is away", 30)
    tpu_log.tell(NOON + 90, Event.RESTART, "node night", 100)
    assert tpu_log.rows() == [
        {"when": "2027-01-15 08:00:00", "event": "wait", "what": "its runtime is not healthy", "took": "60 s"},
        {"when": "2027-01-15 08:01:00", "event": "wait", "what": "the API is away", "took": "30 s"},
        {"when": "2027-01-15 08:01:30", "event": "restart", "what": "node night", "took": "100 s"},
    ]
    assert lines == ["waiting: its runtime is not healthy", "waiting: the API is away", "restart: node night (100 s)"]


def test_a_story_goes_to_json_and_comes_back() -> None:
    tpu_log = TpuLog()
    tpu_log.tell(NOON, Event.REPLACE, "taken away")
    tpu_log.tell(NOON, Event.RECREATE, "ill", worked=False)
    back = TpuLog(TpuLogEntry.model_validate_json(entry.model_dump_json()) for entry in tpu_log.entries)
    assert back.entries == tpu_log.entries
    assert back.tried() == Tried(recreations=1, replacements=1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (1200, "20 min"), (3600, "1 h"), (3900, "1 h 5 min"), (7199, "2 h")],
)
def test_stretches_of_time(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
