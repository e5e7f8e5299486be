"""Who holds this machine's TPU: libtpu's lock, device files, and leftovers of dead processes.

libtpu takes a POSIX record lock (``lockf``) on ``/tmp/libtpu_lockfile`` and holds it until its process ends
(``tensorflow/core/tpu/tpu_initializer_helper.cc``). The kernel drops the lock with the process, but the file stays, and
where another user made it, libtpu cannot open it and believes that the TPU is in use. Some tools write their process id
into the file or use ``flock`` instead; both are understood.

A process of another user is seen by its lock, but not by its open files, unless this process is root's.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from podline.errors import TpuSetupError
from podline.frozen import Frozen
from podline.tpu_settings import MachineSettings

# struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = struct.Struct("hhqqi4x")
# A process id is at most seven digits; what is longer is no process id.
_PID_BYTES = 20


class Holder(Frozen):
    """A living process that has the TPU; ``pid`` is None for one that is out of sight."""

    pid: int | None
    by: str
    command: str = ""

    def __str__(self) -> str:
        who = f"process {self.pid}" if self.pid else "a process out of sight (another user's, or another container's)"
        command = f" ({self.command})" if self.command else ""
        return f"{who}{command}, by {self.by}"


class LockView(Frozen):
    """What a look at the lock showed: free, held by someone, or stale (there, and nobody's)."""

    file: str
    present: bool
    holder: Holder | None = None

    @property
    def stale(self) -> bool:
        """Whether the file is there although nobody has the TPU."""
        return self.present and self.holder is None

    def __str__(self) -> str:
        if self.holder:
            return f"held by {self.holder}"
        return f"stale: {self.file}" if self.present else "free"


def look(machine: MachineSettings) -> LockView:
    """Who has the TPU of this machine; takes nothing."""
    path = Path(machine.lock_file)
    found = _holder_of_file(path) or _holder_of_device(machine.devices)
    return LockView(file=str(path), present=path.exists(), holder=found)


def clear(machine: MachineSettings, log: Callable[[str], None]) -> LockView:
    """Removes a stale lock, and says so; a lock that someone holds is left alone.

    Returns:
        What a look at the lock shows afterwards.

    Raises:
        TpuSetupError: it is stale, but another user's, and cannot be removed.
    """
    view = look(machine)
    if not view.stale:
        return view
    path = Path(machine.lock_file)
    try:
        removed = _remove_unheld(path)
    except PermissionError as error:
        raise TpuSetupError(
            f"{path} was left by a dead process of {_owner(path)} and cannot be removed ({error.strerror}); as long as "
            f"it is there libtpu takes the TPU for used: sudo rm {path}"
        ) from error
    if removed:
        log(f"removed {path}, which a dead process had left behind")
    return look(machine)


def _holder_of_file(path: Path) -> Holder | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except PermissionError:
        return Holder(pid=None, by=f"the unreadable lock file {path}")
    try:
        if pid := _record_lock(descriptor):
            return _process(pid if pid > 0 else None, f"its lock on {path}")
        if not _can_flock(descriptor):
            return _process(next(_with_open(lambda name: name == str(path)), None), f"its lock on {path}")
        written = os.fstat(descriptor).st_mtime
        named = _pid_in(os.read(descriptor, _PID_BYTES + 1))
    finally:
        os.close(descriptor)
    # An id that was given to a process after the file was written is another process's by now.
    if named and (started := _started(named)) is not None and started <= written + 1:
        return _process(named, f"its name in {path}")
    return None


def _record_lock(descriptor: int) -> int:
    """The process with a record lock on a file; 0 is none, and a negative number one that cannot be named."""
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _whence, _start, _length, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    return 0 if kind == fcntl.F_UNLCK else pid or -1


def _can_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _pid_in(content: bytes) -> int | None:
    text = content.decode(errors="replace").strip()
    return int(text) if text.isdecimal() and text.isascii() and len(content) <= _PID_BYTES else None


def _holder_of_device(patterns: Iterable[str]) -> Holder | None:
    patterns = tuple(patterns)
    found = next(_with_open(lambda name: any(fnmatch.fnmatch(name, pattern) for pattern in patterns)), None)
    return _process(found, "the open device") if found else None


def _with_open(wanted: Callable[[str], bool]) -> Iterator[int]:
    """The other processes that have a file open whose name is wanted, as far as this user may see."""
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):  # another user's, or gone by now
            if any(wanted(_target(entry)) for entry in (process / "fd").iterdir()):
                yield pid


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # closed since it was listed
        return ""


def _process(pid: int | None, by: str) -> Holder:
    command = ""
    if pid:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            command = " ".join(word.decode(errors="replace") for word in words if word)[:80]
    return Holder(pid=pid, by=by, command=command)


def _started(pid: int) -> float | None:
    """When a living process started, in seconds since 1970; None if there is none (a zombie is none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    except OSError:
        return None
    # proc(5): the state is the third field, the start, in clock ticks since boot, the twenty-second.
    if fields[0] == "Z":
        return None
    return int(booted.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _remove_unheld(path: Path) -> bool:
    """Removes a file while holding its lock, so that no process takes the lock on it in between.

    Returns:
        Whether it was removed; someone may have taken the lock since it was looked at.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            path.unlink()
            return True
    except (BlockingIOError, FileNotFoundError):
        pass
    finally:
        os.close(descriptor)
    return False


def _owner(path: Path) -> str:
    try:
        return f"user {path.owner()}"
    except (KeyError, OSError):
        return "another user"
