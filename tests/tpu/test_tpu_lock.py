"""Who has the TPU, with living and dead processes that hold real locks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from podline.errors import TpuSetupError
from podline.tpu import lock
from podline.tpu_settings import MachineSettings

HOLDS = {
    # What libtpu does.
    "lockf": "fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644); fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "open": "fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)",
}


@contextlib.contextmanager
def holding(path: Path, how: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds a file in one of several ways, until the body ends or it is killed."""
    code = f"import fcntl, os, sys, time; path = sys.argv[1]; {HOLDS[how]}; print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def machine(tmp_path: Path) -> MachineSettings:
    return MachineSettings(lock_file=str(tmp_path / "libtpu_lockfile"))


def test_no_file_and_no_device_in_use_is_free(machine: MachineSettings) -> None:
    view = lock.look(machine)
    assert (view.present, view.holder, view.stale) == (False, "", False)
    assert str(view) == "free"
    assert lock.clear(machine, pytest.fail) == view


def test_a_living_holder_is_named_and_left_alone(machine: MachineSettings) -> None:
    path = Path(machine.lock_file)
    with holding(path, "lockf") as process:
        view = lock.clear(machine, pytest.fail)
        assert f"process {process.pid} (" in view.holder
        assert "import fcntl" in view.holder
        assert str(process.pid) in str(view)
        assert path.exists()


def test_who_only_has_the_lock_file_open_has_not(machine: MachineSettings) -> None:
    with holding(Path(machine.lock_file), "open"):
        assert lock.look(machine).holder == ""


def test_what_a_killed_holder_left_behind_is_removed_with_a_line(machine: MachineSettings) -> None:
    path = Path(machine.lock_file)
    with holding(path, "lockf") as process:
        process.kill()
        process.wait()
        assert lock.look(machine).stale
        assert str(lock.look(machine)) == f"stale: {path}"
        lines: list[str] = []
        assert str(lock.clear(machine, lines.append)) == "free"
        assert not path.exists()
        assert lines == [f"removed {path}, which a dead process had left behind"]


def test_a_lock_file_that_someone_made_again_in_the_meantime_is_left_alone(
    machine: MachineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(machine.lock_file)
    path.write_text("old")
    lockf = fcntl.lockf

    def made_again(descriptor: int, how: int) -> None:
        lockf(descriptor, how)
        path.unlink()
        path.write_text("new")

    monkeypatch.setattr(fcntl, "lockf", made_again)
    lock.clear(machine, pytest.fail)
    assert path.read_text() == "new"


def test_a_lock_of_another_users_that_cannot_be_removed_says_what_to_do() -> None:
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "libtpu_lockfile"
        path.touch(0o644)
        machine = MachineSettings(lock_file=str(path))
        with _may_not_write_to(Path(folder), nobody), pytest.raises(TpuSetupError, match=f"sudo rm {path}"):
            lock.clear(machine, pytest.fail)
        assert path.exists()


@contextlib.contextmanager
def _may_not_write_to(folder: Path, other: int) -> Iterator[None]:
    """Takes the right to change a folder away: root becomes another user, anyone else loses write permission."""
    is_root = os.geteuid() == 0
    folder.chmod(0o555)
    if is_root:
        os.seteuid(other)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)
