"""A lock for one user of a TPU at a time on this machine, with a pause between two.

libtpu's own lock is taken only when TensorFlow has started, which takes a while. The reservation is taken before
anything is looked at and given back when all is done, so that two runs never get past the gate together. It is a
``flock`` on a small file: it ends with the process that holds it, however that ends. The file says who has it and, when
it was given back, since when: the cool-down counts from there. A holder that was killed could not say when; then the
cool-down counts from the moment that the next one notices.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from pydantic import ValidationError

from podline.errors import TpuSetupError
from podline.frozen import Frozen
from podline.tpu.clock import Clock


class _Use(Frozen):
    """What the file holds; times are in seconds since 1970."""

    pid: int
    since: float
    released: float | None = None


class Reservation:
    """The right to use a TPU from this machine.

    Args:
        file: by which all users take turns.
        cool_down: seconds between two users.
        clock: says when that is.
    """

    def __init__(self, file: Path, cool_down: float, clock: Clock) -> None:
        self._file, self._cool_down, self._clock = file, cool_down, clock
        self._descriptor: int | None = None
        self._free_at = 0.0

    def take(self) -> bool:
        """Takes it, if nobody else on this machine has it; whether this one has it now.

        Raises:
            TpuSetupError: the file cannot be used.
        """
        if self._descriptor is not None:
            return True
        descriptor = _open(self._file)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        now = self._clock.now()
        self._free_at = now + _cooling(_read(descriptor), self._cool_down, now)
        self._write(_Use(pid=os.getpid(), since=now))
        return True

    def give_back(self) -> None:
        """Gives it back; the cool-down starts."""
        if self._descriptor is not None:
            now = self._clock.now()
            self._write(_Use(pid=os.getpid(), since=now, released=now))
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def cooling(self) -> float:
        """Seconds that are left of the cool-down after the last user, for the one who has the reservation."""
        return max(self._free_at - self._clock.now(), 0.0)

    def _write(self, use: _Use) -> None:
        assert self._descriptor is not None  # noqa: S101 (only who has it writes)
        content = use.model_dump_json().encode()
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))


class ReservationView(Frozen):
    """What a look at a reservation showed: who has it, or how long the cool-down after the last user takes."""

    holder: int | None = None
    cooling: float = 0.0

    def __str__(self) -> str:
        if self.holder is not None:
            return f"process {self.holder}" if self.holder else "a process that has only just started"
        return f"free, cooling down for {self.cooling:.0f} s" if self.cooling else "free"


def look(file: Path, cool_down: float, clock: Clock) -> ReservationView:
    """Who has a reservation; takes it for a moment if nobody does, and changes nothing."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return ReservationView()
    try:
        use, held = _read(descriptor), False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            held = True
    finally:
        os.close(descriptor)
    if held:
        return ReservationView(holder=use.pid if use else 0)
    return ReservationView(cooling=_cooling(use, cool_down, clock.now()))


def _cooling(last: _Use | None, cool_down: float, now: float) -> float:
    """Seconds until a cool-down is over; one whose beginning nobody wrote down begins now."""
    if last is None:
        return 0.0
    released = now if last.released is None else min(last.released, now)
    return max(released + cool_down - now, 0.0)


def _open(file: Path) -> int:
    """The file, open for reading and writing, made if need be for all users of the machine.

    O_CREAT on another user's file in a folder like /tmp is refused by the kernel (``fs.protected_regular``), so a file
    that is there is opened without it.
    """
    for _attempt in range(2):
        with contextlib.suppress(FileNotFoundError):
            return _opened(file, os.O_RDWR)
        with contextlib.suppress(FileExistsError):
            descriptor = _opened(file, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            os.fchmod(descriptor, 0o666)
            return descriptor
    raise TpuSetupError(f"{file} comes and goes: who removes it?")


def _opened(file: Path, flags: int) -> int:
    try:
        return os.open(file, flags, 0o666)
    except (FileNotFoundError, FileExistsError) as error:
        if not file.parent.is_dir():
            raise TpuSetupError(f"the folder of {file} is not there; make it, or name another") from error
        raise
    except OSError as error:
        raise TpuSetupError(
            f"{file}, by which users of the TPU take turns, cannot be used: {error.strerror}"
        ) from error


def _read(descriptor: int) -> _Use | None:
    content = os.pread(descriptor, 4096, 0)
    if not content:
        return None
    try:
        return _Use.model_validate_json(content)
    except ValidationError:  # cut short by a kill: someone had it
        return _Use(pid=0, since=0.0)
