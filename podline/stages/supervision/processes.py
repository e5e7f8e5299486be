"""Finds and ends the descendants of a process, and detects the death of a parent.

This module is written for Linux. Other systems have no ``/proc``, so that descendants in sessions of their own are not
found; everything else works.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Seconds for a process to end after SIGKILL; only a process that is stuck in the kernel takes any time.
_KILL_SECONDS = 5.0
_PARENT_POLL = 0.5
_END_POLL = 0.1


def marked(variable: str, value: str) -> list[int]:
    """Return the ids of all other processes that were started with ``variable=value`` in their environment."""
    wanted = f"{variable}={value}"
    return [each for each in _all() if each != os.getpid() and wanted in _environment(each)]


def parent(process: int) -> int | None:
    """Return the id of a process's parent; None if the process has ended or is a zombie."""
    try:
        # proc(5): the command's name in brackets may contain any text; state and parent id follow it.
        state, parent_id = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent_id)


def children(process: int) -> list[int]:
    """Return the ids of a process's living children."""
    return [each for each in _all() if parent(each) == process]


def variable_of(process: int, name: str) -> str:
    """Return a variable of a process's initial environment; empty if it is not set, or the process has ended."""
    start = f"{name}="
    return next((each.removeprefix(start) for each in _environment(process) if each.startswith(start)), "")


def end(left: Callable[[], list[int]], seconds: float) -> None:
    """Send SIGTERM to processes once, and wait for their end.

    Args:
        left: returns the ids of the processes that still run.
        seconds: longest wait.
    """
    for process in left():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while left() and time.monotonic() < deadline:
        time.sleep(_END_POLL)


def kill_marked(variable: str, value: str) -> None:
    """Send SIGKILL to all processes started with ``variable=value``, in any session, until they end, at most 5 s."""
    deadline = time.monotonic() + _KILL_SECONDS
    while (left := marked(variable, value)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def kill_group(leader: int) -> None:
    """Send SIGKILL to a process group; do nothing if the group is empty."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def exit_code(process: int) -> int | None:
    """Return the exit code of a child, or minus the number of the signal that ended it; None while the child runs.

    The child stays a zombie, so that no other process gets its id before the caller calls ``wait``.
    """
    ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def when_parent_goes(lifeline: int, act: Callable[[], None]) -> None:
    """Call ``act`` once, in a separate thread, when this process's parent has died.

    Args:
        lifeline: the reading end of a pipe whose writing end only the parent holds; nothing is read from it. The
            parent's id is checked too, in case another process inherited the writing end.
        act: the action.
    """
    parent = os.getppid()
    hang_up = select.poll()
    hang_up.register(lifeline, 0)  # poll(2): the end of all writers is always reported

    def watch() -> None:
        while os.getppid() == parent and not hang_up.poll(1000 * _PARENT_POLL):
            pass
        act()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


@contextlib.contextmanager
def killed_first() -> Iterator[None]:
    """Make this process the first that the kernel kills if memory runs out during the body."""
    adjustment = Path("/proc/self/oom_score_adj")
    usual = adjustment.read_text()
    adjustment.write_text("1000")
    try:
        yield
    finally:
        adjustment.write_text(usual)


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def _environment(process: int) -> list[str]:
    """Return a process's initial environment as ``NAME=value``; empty if the process ended or is another user's."""
    try:
        return Path(f"/proc/{process}/environ").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return []
