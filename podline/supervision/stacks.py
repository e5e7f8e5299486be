"""Parses the stacks that ``faulthandler`` writes of a hung process."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import NamedTuple

# Makes a child write the stacks of all its threads to its log.
STACKS_SIGNAL = signal.SIGUSR1

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_OURS = str(Path(__file__).parent.parent)
_NAMED = 8


class _Frame(NamedTuple):
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        parts = Path(self.file).parts
        root = parts.index("site-packages") + 1 if "site-packages" in parts else len(Path(_OURS).parts) - 1
        shown = Path(*parts[root:]) if "site-packages" in parts or self.is_ours else Path(self.file)
        return f"{shown}:{self.line} in {self.function}"

    @property
    def is_ours(self) -> bool:
        return self.file.startswith(_OURS)


def where(stacks: str) -> str:
    """In a few lines, where each thread is: its innermost frame, and the innermost one of Podline's own.

    Args:
        stacks: what ``faulthandler`` wrote, each thread's innermost frame first; the main thread comes last.
    """
    threads = _threads(stacks)
    if not threads:
        return "where its threads were it could not say"
    lines = [f"main thread: {_place(threads[-1])}"]
    others = list(dict.fromkeys(_place(thread) for thread in threads[:-1]))
    lines += [f"another thread: {place}" for place in others[:_NAMED]]
    return "\n".join(lines)


def _threads(stacks: str) -> list[list[_Frame]]:
    threads: list[list[_Frame]] = []
    for line in stacks.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and (frame := _FRAME.match(line)):
            threads[-1].append(_Frame(frame["file"], int(frame["line"]), frame["function"]))
    return [thread for thread in threads if thread]


def _place(thread: list[_Frame]) -> str:
    innermost = thread[0]
    ours = next((frame for frame in thread if frame.is_ours), innermost)
    return str(innermost) if ours == innermost else f"{innermost}, called from {ours}"
