"""Parses the stacks that ``faulthandler`` writes for a hung process."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import podline

# The signal on which a child writes the stacks of all its threads to its log.
STACKS_SIGNAL = signal.SIGUSR1

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_OURS = str(Path(podline.__file__).parent)
_NAMED = 8


def where(stacks: str) -> str:
    """Return a line for each of at most eight places of threads: the innermost frame, and that in Podline's code.

    Args:
        stacks: the output of ``faulthandler``: the main thread last, each thread's innermost frame first.
    """
    threads = [frames for text in _THREAD.split(stacks)[1:] if (frames := _FRAME.findall(text))]
    if not threads:
        return "its threads wrote no stacks"
    others = list(dict.fromkeys(_place(thread) for thread in threads[:-1]))
    lines = [f"main thread: {_place(threads[-1])}", *(f"another thread: {place}" for place in others[:_NAMED])]
    return "\n".join(lines)


def _place(frames: list[tuple[str, str, str]]) -> str:
    innermost = _shown(*frames[0])
    ours = next((_shown(*frame) for frame in frames if frame[0].startswith(_OURS)), innermost)
    return innermost if ours == innermost else f"{innermost}, called from {ours}"


def _shown(file: str, line: str, function: str) -> str:
    """Format a frame without the folder of installed packages."""
    for folder in (f"{Path(_OURS).parent}/", "/site-packages/"):
        file = file.rpartition(folder)[2]
    return f"{file}:{line} in {function}"
