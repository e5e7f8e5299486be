"""Turns at a TPU on this machine: one user at a time, and a pause between two.

libtpu's own lock is taken only when TensorFlow has started, which takes a while. A turn is taken before anything is
looked at and given back when all is done, so that two runs never get past the gate together. It is a ``flock`` on a
small file: it ends with the process that holds it, however that ends. The file holds the user's process and, when the
turn was given back, the time: the cool-down counts from there. A killed user could not write that; then the cool-down
counts from the moment at which the next one notices.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from podline.errors import TpuSetupError
from podline.frozen import Frozen
from podline.tpu.clock import Clock


class Turn:
    """The right to use a TPU from this machine.

    Args:
        file: by which all users take turns.
        cool_down: seconds between two users.
        clock: the clock that the cool-down counts by.
    """

    def __init__(self, file: Path, cool_down: float, clock: Clock) -> None:
        self._file, self._cool_down, self._clock = file, cool_down, clock
        self._descriptor: int | None = None
        self._free_at = 0.0

    def take(self) -> bool:
        """Take the turn, if no other process on this machine has it; return whether this one has it now.

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
        now = self._clock.now()
        self._descriptor, self._free_at = descriptor, now + _cooling(_read(descriptor), self._cool_down, now)
        self._write(f"{os.getpid()}")
        return True

    def give_back(self) -> None:
        """Give the turn back; the cool-down starts."""
        if self._descriptor is not None:
            self._write(f"{os.getpid()} {self._clock.now()}")
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def cooling(self) -> float:
        """The seconds that are left of the cool-down after the last user, for the one who has the turn."""
        return max(self._free_at - self._clock.now(), 0.0)

    def _write(self, text: str) -> None:
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text.encode(), 0)


class TurnView(Frozen):
    """A turn at a time: the process that has it, or how long the cool-down after the last user takes."""

    holder: str = ""
    cooling: float = 0.0

    def __str__(self) -> str:
        if self.holder:
            return f"process {self.holder}"
        return f"free, cooling down for {self.cooling:.0f} s" if self.cooling else "free"


def look(file: Path, cool_down: float, clock: Clock) -> TurnView:
    """Return who has the turn; take it for a moment if it is free, and change nothing."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return TurnView()
    words = _read(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return TurnView(holder=words[0] if words else "?")
    finally:
        os.close(descriptor)
    return TurnView(cooling=_cooling(words, cool_down, clock.now()))


def _cooling(words: list[str], cool_down: float, now: float) -> float:
    """Return the seconds until a cool-down is over; one whose beginning is not written down begins now."""
    if not words:
        return 0.0
    try:
        released = min(float(words[1]), now)
    except (IndexError, ValueError):
        released = now
    return max(released + cool_down - now, 0.0)


def _read(descriptor: int) -> list[str]:
    return os.pread(descriptor, 200, 0).decode(errors="replace").split()


def _open(file: Path) -> int:
    """Open the file, which is made if need be, for all users of the machine."""
    try:
        try:
            # The kernel refuses O_CREAT on another user's file in a folder like /tmp (fs.protected_regular).
            return os.open(file, os.O_RDWR)
        except FileNotFoundError:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
            os.fchmod(descriptor, 0o666)
            return descriptor
    except OSError as error:
        raise TpuSetupError(
            f"{file}, by which users of the TPU take turns, cannot be used: {error.strerror}; the setting tpu.folder "
            "names its folder"
        ) from error
