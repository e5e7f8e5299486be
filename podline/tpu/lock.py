"""The lock of this machine's TPU: finds the process that holds it, and removes the file of a dead process.

libtpu takes a POSIX record lock (``lockf``) on ``/tmp/libtpu_lockfile`` and holds it until its process ends
(``tensorflow/core/tpu/tpu_initializer_helper.cc``). The kernel drops the lock with the process, but the file stays. If
another user created the file, libtpu cannot open it and assumes that the TPU is in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable
from pathlib import Path

from podline.base.errors import TpuSetupError
from podline.base.frozen import Frozen
from podline.settings.tpu_settings import MachineSettings

# struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = struct.Struct("hhqqi4x")


class LockView(Frozen):
    """The state of the lock: free, held by the process ``holder``, or stale (a file that no living process locks)."""

    file: str
    present: bool
    holder: str = ""

    @property
    def stale(self) -> bool:
        """Return whether the file exists, but no living process locks it."""
        return self.present and not self.holder

    def __str__(self) -> str:
        if self.holder:
            return f"held by {self.holder}"
        return f"stale: {self.file}" if self.present else "free"


def look(machine: MachineSettings) -> LockView:
    """Return the state of this machine's lock, without taking it; a file that cannot be read counts as held."""
    path = Path(machine.lock_file)
    return LockView(file=str(path), present=path.exists(), holder=_holder(path))


def clear(machine: MachineSettings, log: Callable[[str], None]) -> LockView:
    """Remove the file of a stale lock, and log that; keep a lock that a living process holds.

    Returns:
        The state of the lock afterwards.

    Raises:
        TpuSetupError: the file of the stale lock belongs to another user, and cannot be removed.
    """
    view = look(machine)
    if not view.stale:
        return view
    path = Path(machine.lock_file)
    try:
        removed = _remove_unheld(path)
    except PermissionError as error:
        raise TpuSetupError(
            f"{path} was left by a dead process of user {path.stat().st_uid} and cannot be removed "
            f"({error.strerror}); while it exists, libtpu assumes that the TPU is in use: sudo rm {path}"
        ) from error
    if removed:
        log(f"removed {path}, which a dead process had left behind")
    return look(machine)


def _holder(path: Path) -> str:
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with path.open("rb") as file:
            kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, question))
    except FileNotFoundError:
        return ""
    except PermissionError:
        return f"a process of another user ({path} cannot be read)"
    return "" if kind == fcntl.F_UNLCK else f"{_process(pid)}, which locks {path}"


def _process(pid: int) -> str:
    """Describe a process; the kernel gives no positive id for one in another container."""
    if pid <= 0:
        return "a process of another container"
    command = ""
    with contextlib.suppress(OSError):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        command = " ".join(argument.decode(errors="replace") for argument in arguments if argument)[:80]
    return f"process {pid} ({command})"


def _remove_unheld(path: Path) -> bool:
    """Remove a file while holding a lock on it, so that no process can lock it meanwhile; return whether it worked."""
    try:
        with path.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_ino != path.stat().st_ino:
                return False
            path.unlink()
    except (BlockingIOError, FileNotFoundError):
        return False
    return True
