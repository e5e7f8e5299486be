"""Turns SIGTERM into an exception that libraries and the interpreter do not swallow."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

# Seconds until SIGTERM is sent again after the interpreter dropped an Interruption.
_AGAIN_SECONDS = 0.05


class Interruption(KeyboardInterrupt):
    """SIGTERM arrived.

    A KeyboardInterrupt, because CPython drops other exceptions of a signal handler while it folds a constant such as
    ``2**64``, for example during an import; and because libraries that catch every other exception do not catch it.
    """

    def __init__(self) -> None:
        """Create the exception with the message for the user."""
        super().__init__("asked to end (SIGTERM); the same command resumes from the last checkpoint or finished stage")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise an :class:`Interruption` in the main thread if SIGTERM arrives during the body.

    If SIGTERM arrives while an object is deleted, Python only prints the exception; SIGTERM is then sent again.
    """
    handler, hook = signal.signal(signal.SIGTERM, _interrupt), sys.unraisablehook

    def again(dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, Interruption):
            hook(dropped)
            return
        # A timer of the kernel: a thread could deadlock, as the interrupted code may hold a lock of Python's threads.
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
