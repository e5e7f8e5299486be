"""Ends processes that were started if a later step of the start fails."""

from __future__ import annotations

import subprocess
from types import TracebackType

from podline.supervision import processes

STOP_SECONDS = 15.0
"""How long a process that is asked to end has for it, unless it has work to save."""


class Started:
    """A context: when its body fails, what was added in it is ended, the last first."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def add(self, process: subprocess.Popen[bytes]) -> None:
        """Has a process that leads a session of its own ended with the others."""
        self._processes.append(process)

    def __enter__(self) -> Started:
        """Nothing is started yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the processes if the body failed."""
        for process in reversed(self._processes):
            if kind is None:
                # It outlives this object, which is as it should be: Python is not to warn of it.
                process.returncode = 0
                continue
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                processes.kill_group(process.pid)
                process.wait()
