"""What happens on the machine itself: notices of its end, libtpu's lock, a child that the kernel kills."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from standin.timeline import Announcement

from podline import errors

HOLDS = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); "

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("preempted", "TRUE", "the machine is being preempted"),
        ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", "maintenance of the host"),
        (
            "upcoming-maintenance",
            '{"type": "SCHEDULED", "window_start_time": "2027-01-15T08:05:00Z"}',
            "scheduled maintenance starts within 300 s",
        ),
    ],
)
def test_an_end_that_is_announced_is_left_with_a_checkpoint(night: Any, key: str, value: str, said: str) -> None:
    # It is 08:00, and the announcement comes a minute later.
    with night(machine=True, announced=(Announcement(60, key, value, end=600),)) as it:
        it.run()
    assert it.events == ["go", "leave", "wait", "go", "leave"]
    assert it.trained == 2
    assert said in it.told[1]["what"]
    assert said in it.told[2]["what"]
    assert any(re.search(r"trying again in 0\.\d+ s \(1 of 2\): ", line) for line in it.lines)
    assert it.ended_well()


def test_a_lock_that_a_living_process_holds_is_named_waited_for_and_never_taken(night: Any) -> None:
    with night(machine=True) as it:
        command = [sys.executable, "-c", HOLDS + "time.sleep(300)", str(it.folder / "lock")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            try:
                with pytest.raises(errors.TpuInUseError, match="a living process has it"):
                    it.run()
            finally:
                holder.kill()
        assert it.trained == 0
        assert it.events == ["wait", "give up"] * 3
        assert f"process {holder.pid} ({sys.executable} -c" in it.told[0]["what"]
        assert it.failed_with("a living process has it")
        it.run()
    assert it.ended_well()


def test_a_lock_that_a_dead_process_left_is_removed_and_that_is_said(night: Any) -> None:
    with night(machine=True) as it:
        (it.folder / "lock").touch()
        it.run()
        assert not (it.folder / "lock").exists()
    assert it.trained == 1
    assert it.events == ["lock", "go", "leave"]
    assert any(f"removed {it.folder}/lock, which a dead process had left behind" in line for line in it.lines)
    assert it.ended_well()


def test_a_child_that_the_kernel_kills_is_gone_on_with(night: Any) -> None:
    with night() as it:
        (it.root / "at-6").write_text("die")
        it.run()
    assert it.trained == 2
    assert it.events == ["go", "leave", "wait", "go", "leave"]
    assert "killed by SIGKILL (by someone, or by the kernel because memory ran out)" in it.told[1]["what"]
    assert it.verbs() == []
    assert it.ended_well()
