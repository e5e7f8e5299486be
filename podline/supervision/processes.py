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

# How long processes that were sent SIGKILL may take to be gone; only one stuck in the kernel takes any time at all.
_KILL_SECONDS = 5.0
_PARENT_POLL = 0.5
_END_POLL = 0.1


def marked(variable: str, value: str) -> list[int]:
    """The ids of living processes, but this one, that were started with ``variable=value`` in their environment."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or gone by now
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [process for process in found if process != os.getpid()]


def parent(process: int) -> int | None:
    """The id of a process's parent; None if it is gone, or is a zombie that nobody has waited for yet."""
    try:
        # proc(5): after the command's name in brackets, which may be anything, come the state and the parent.
        state, parent_id = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent_id)


def children(process: int) -> list[int]:
    """The ids of a process's living children."""
    found = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return [each for each in found if parent(each) == process]


def command(process: int) -> list[str]:
    """The command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def variable_of(process: int, name: str) -> str:
    """A variable that a process was started with; empty if there is none, or no such process any more."""
    try:
        variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    wanted = f"{name}=".encode()
    return next((each[len(wanted) :].decode() for each in variables if each.startswith(wanted)), "")


def end(left: Callable[[], list[int]], seconds: float) -> None:
    """Asks processes to end, once, and waits until they have, for so long.

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
    """Sends SIGKILL to every process with a mark, whatever session it is in, until none is left."""
    deadline = time.monotonic() + _KILL_SECONDS
    while (left := marked(variable, value)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def kill_group(leader: int) -> None:
    """Sends SIGKILL to a process group; one that is empty is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def exit_code(process: int) -> int | None:
    """How a child ended (minus the signal's number if one ended it), or None while it runs.

    The child stays a zombie, so that its id means no other process before it is waited for.
    """
    ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def when_parent_goes(lifeline: int, act: Callable[[], None]) -> None:
    """Calls ``act``, once, in a thread of its own, when the process that started this one is gone.

    Args:
        lifeline: a file descriptor whose other end the parent alone holds, and never writes to again: its end of file
            is the sign. The parent's id is looked at as well, in case some third process inherited the other end.
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
