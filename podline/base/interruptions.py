"""Turns SIGTERM into an exception that nothing swallows on its way up."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

# Seconds until a dropped interruption is raised again, elsewhere.
_AGAIN_SECONDS = 0.05


class Interruption(KeyboardInterrupt):
    """SIGTERM arrived.

    CPython drops any other exception of a signal handler while it compiles a constant like ``2**64``, as an import
    may. Libraries that catch all other errors let a KeyboardInterrupt pass, too.
    """

    def __init__(self) -> None:
        """Create the exception with the message for the user."""
        super().__init__("asked to end (SIGTERM); the same command resumes from the last checkpoint or finished stage")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise an :class:`Interruption` in the main thread if SIGTERM arrives during the body.

    Python only prints an exception that is raised while an object is deleted. SIGTERM is then sent again.
    """
    handler, hook = signal.signal(signal.SIGTERM, _interrupt), sys.unraisablehook

    def again(dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, Interruption):
            hook(dropped)
            return
        # A timer of the kernel, since this code may have interrupted one that holds a lock of Python's threads.
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, handler)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise Interruption
