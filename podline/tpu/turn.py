"""Turns of the TPU's users on this machine: one process at a time, with a cool-down between two processes.

libtpu's own lock is only taken after TensorFlow's start. A turn is taken before any inspection and given back at the
end, so that two runs never pass the gate together. The turn is a lock on a small file; the lock ends with its process.
The file has the process's id and, after the turn, the start of the cool-down. A killed process cannot write this time.
Then the cool-down starts when the next process takes the turn.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from podline.base.errors import TpuSetupError
from podline.base.frozen import Frozen
from podline.store.locks import locked
from podline.tpu.clock import Clock


class Turn:
    """The right of one process of this machine to use a TPU.

    Args:
        path: the file that all users of the TPU lock.
        cool_down: seconds between two uses.
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
            with _explained(self._path):
                self._file = self._stack.enter_context(locked(self._path, wait=False))
            if self._file is not None:
                now = self._clock.now()
                self._free_at = now + _cooling(self._file.read().split(), self._cool_down, now)
                self._write(f"{os.getpid()}")
        return self._file is not None

    def give_back(self) -> None:
        """Give the turn back, and start the cool-down."""
        with contextlib.suppress(
            OSError
        ):  # without the time, the cool-down starts when the next process takes the turn
            self._write(f"{os.getpid()} {self._clock.now()}")
        self._file = None
        self._stack.close()

    @property
    def cooling(self) -> float:
        """The remaining seconds of the cool-down after the last user; only valid while this process has the turn."""
        return max(self._free_at - self._clock.now(), 0.0)

    def _write(self, text: str) -> None:
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(text.encode())


class TurnView(Frozen):
    """The state of a turn: the process that has it, or the remaining seconds of the cool-down."""

    holder: str = ""
    cooling: float = 0.0

    def __str__(self) -> str:
        if self.holder:
            return f"process {self.holder}"
        return f"free, cooling down for {self.cooling:.0f} s" if self.cooling else "free"


def look(path: Path, cool_down: float, clock: Clock) -> TurnView:
    """Return the state of the turn without taking it; take a shared lock for a moment if the turn is free."""
    with _explained(path):
        if not path.exists():
            return TurnView()
        values = path.read_bytes().split()
        with locked(path, shared=True, wait=False) as free:
            if free is None:
                return TurnView(holder=values[0].decode(errors="replace") if values else "?")
    return TurnView(cooling=_cooling(values, cool_down, clock.now()))


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TpuSetupError(
            f"{path}, the lock file of the TPU's users, cannot be used: {error.strerror}; set tpu.folder to another "
            "folder"
        ) from error


def _cooling(values: list[bytes], cool_down: float, now: float) -> float:
    """Return the remaining seconds of the cool-down.

    Args:
        values: the file's content: the process's id and, if the turn was given back, the time of that.
        cool_down: seconds between two uses.
        now: the present time; the cool-down starts now if the file has no time.
    """
    if not values:
        return 0.0
    try:
        released = min(float(values[1]), now)
    except (IndexError, ValueError):
        released = now
    return max(released + cool_down - now, 0.0)
