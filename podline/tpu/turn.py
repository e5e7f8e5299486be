"""Turns at a TPU on this machine: one user at a time, with a pause between two users.

libtpu's own lock is only taken after TensorFlow's start. A turn is taken before any inspection and returned at the end,
so that two runs never pass the gate together. It is a lock on a small file that ends with its process. The file
contains the user's process and, after the turn, the time from which the cool-down counts. A killed user could not write
the time; then the cool-down counts from the time at which the next user notices.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO

from podline.base.errors import TpuSetupError
from podline.base.frozen import Frozen
from podline.store.locks import locked
from podline.tpu.clock import Clock


class Turn:
    """The right to use a TPU from this machine.

    Args:
        path: the file that all users lock.
        cool_down: seconds between two users.
        clock: the clock for the cool-down.
    """

    def __init__(self, path: Path, cool_down: float, clock: Clock) -> None:
        self._path, self._cool_down, self._clock = path, cool_down, clock
        self._stack = contextlib.ExitStack()
        self._file: IO[bytes] | None = None
        self._free_at = 0.0

    def take(self) -> bool:
        """Take the turn if no other process on this machine has it; return whether this process has it now.

        Raises:
            TpuSetupError: the file cannot be used.
        """
        if self._file is None:
            try:
                self._file = self._stack.enter_context(locked(self._path, wait=False))
            except OSError as error:
                raise TpuSetupError(
                    f"{self._path}, the lock file of the TPU's users, cannot be used: {error.strerror}; the "
                    "setting tpu.folder names its folder"
                ) from error
            if self._file is not None:
                now = self._clock.now()
                self._free_at = now + _cooling(self._file.read().split(), self._cool_down, now)
                self._write(f"{os.getpid()}")
        return self._file is not None

    def give_back(self) -> None:
        """Return the turn; the cool-down starts."""
        with contextlib.suppress(OSError):  # without the time, the cool-down starts when the next user notices
            self._write(f"{os.getpid()} {self._clock.now()}")
        self._file = None
        self._stack.close()

    @property
    def cooling(self) -> float:
        """The remaining seconds of the cool-down after the last user; for the holder of the turn."""
        return max(self._free_at - self._clock.now(), 0.0)

    def _write(self, text: str) -> None:
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(text.encode())


class TurnView(Frozen):
    """The state of a turn: the process that has it, or the rest of the cool-down."""

    holder: str = ""
    cooling: float = 0.0

    def __str__(self) -> str:
        if self.holder:
            return f"process {self.holder}"
        return f"free, cooling down for {self.cooling:.0f} s" if self.cooling else "free"


def look(path: Path, cool_down: float, clock: Clock) -> TurnView:
    """Return the state of the turn without changing it; share the lock for a moment if it is free."""
    if not path.exists():
        return TurnView()
    words = path.read_bytes().split()
    with locked(path, shared=True, wait=False) as free:
        if free is None:
            return TurnView(holder=words[0].decode(errors="replace") if words else "?")
    return TurnView(cooling=_cooling(words, cool_down, clock.now()))


def _cooling(words: list[bytes], cool_down: float, now: float) -> float:
    """Return the remaining seconds of a cool-down; without a recorded start it starts now."""
    if not words:
        return 0.0
    try:
        released = min(float(words[1]), now)
    except (IndexError, ValueError):
        released = now
    return max(released + cool_down - now, 0.0)
