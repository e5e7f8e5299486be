"""Finds and ends the descendants of a process, and notices that a parent is gone.

Linux is the system this is written for. Elsewhere there is no ``/proc``, and a process that made a session of its own
is not found; all else works.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

# In which a process ends after SIGKILL; only one that is stuck in the kernel takes any time at all.
_KILL_SECONDS = 5.0
_PARENT_POLL = 0.5
_END_POLL = 0.1


def marked(variable: str, value: str) -> list[int]:
    """Return the ids of living processes, but this one, that were started with ``variable=value``."""
    wanted = f"{variable}={value}"
    return [each for each in _all() if each != os.getpid() and wanted in _environment(each)]


def parent(process: int) -> int | None:
    """Return the id of a process's parent; None if the process is gone or a zombie."""
    try:
        # proc(5): after the command's name in brackets, which may be anything, come the state and the parent.
        state, parent_id = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent_id)


def children(process: int) -> list[int]:
    """Return the ids of a process's living children."""
    return [each for each in _all() if parent(each) == process]


def variable_of(process: int, name: str) -> str:
    """Return a variable that a process was started with; empty if there is none, or no such process any more."""
    start = f"{name}="
    return next((each.removeprefix(start) for each in _environment(process) if each.startswith(start)), "")


def end(left: Callable[[], list[int]], seconds: float) -> None:
    """Ask processes to end, once, and wait for them.

    Args:
        left: the ids of those that are still there.
        seconds: how long to wait.
    """
    for process in left():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while left() and time.monotonic() < deadline:
        time.sleep(_END_POLL)


def kill_marked(variable: str, value: str) -> None:
    """Send SIGKILL to every process with a mark, in any session, until none is left."""
    deadline = time.monotonic() + _KILL_SECONDS
    while (left := marked(variable, value)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def kill_group(leader: int) -> None:
    """Send SIGKILL to a process group; an empty one is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def exit_code(process: int) -> int | None:
    """Return how a child ended (minus the signal's number if one ended it); None while it runs.

    The child stays a zombie, so that no other process gets its id before it is waited for.
    """
    ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def when_parent_goes(lifeline: int, act: Callable[[], None]) -> None:
    """Call ``act``, once, in a thread of its own, when the process that started this one is gone.

    Args:
        lifeline: a file descriptor whose other end the parent alone holds, and never writes to again: its end of file
            is the sign. The parent's id is looked at too, in case a third process inherited the other end.
        act: what to do then.
    """
    parent = os.getppid()

    def watch() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(lifeline, selectors.EVENT_READ)
            while os.getppid() == parent:
                if selector.select(_PARENT_POLL) and not os.read(lifeline, 4096):
                    break
        act()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def _environment(process: int) -> list[str]:
    """Return what a process was started with, ``NAME=value`` each; nothing if it is gone or another user's."""
    try:
        return Path(f"/proc/{process}/environ").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []
