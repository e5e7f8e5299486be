"""Who has the TPU, with living and dead processes that hold real locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from podline.base.errors import TpuSetupError
from podline.settings.tpu_settings import MachineSettings
from podline.tpu import lock

# What libtpu does to its lock file.
HOLD = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o644)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def holding(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock, until the body ends or it is killed."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def machine(tmp_path: Path) -> MachineSettings:
    return MachineSettings(lock_file=str(tmp_path / "libtpu_lockfile"))


def test_a_living_holder_is_named_and_what_a_killed_one_left_behind_is_removed_with_a_line(
    machine: MachineSettings,
) -> None:
    path, lines = Path(machine.lock_file), list[str]()
    assert str(lock.clear(machine, pytest.fail)) == "free"
    with holding(path) as process:
        view = lock.clear(machine, pytest.fail)
        assert f"process {process.pid} (" in view.holder
        assert "import fcntl" in view.holder
        assert str(process.pid) in str(view)
        assert path.exists()
        process.kill()
        process.wait()
        assert lock.look(machine).stale
        assert str(lock.look(machine)) == f"stale: {path}"
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


def test_a_lock_of_another_users_that_cannot_be_removed_says_what_to_do(
    machine: MachineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(machine.lock_file).touch()
    # The folder has the sticky bit, and this process is not root.
    monkeypatch.setattr(Path, "unlink", Mock(side_effect=PermissionError(errno.EPERM, "Operation not permitted")))
    with pytest.raises(TpuSetupError, match=f"sudo rm {machine.lock_file}"):
        lock.clear(machine, pytest.fail)
    assert Path(machine.lock_file).exists()
