"""SIGTERM ends the work of the main thread, whatever code it interrupts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from podline.base.interruptions import Interruption, interruptible


def _in_code_that_ignores_errors() -> None:
    with contextlib.suppress(Exception):
        time.sleep(30)


class _Slow:
    def __del__(self) -> None:
        time.sleep(0.5)


def _at_the_end_of_an_object() -> None:
    _Slow()
    time.sleep(30)


def _in_an_import() -> None:
    """Compile what CPython computes in advance; it ignores all errors of that except for a KeyboardInterrupt."""
    text, deadline = "x = 2**64\n" + "call(1, a=2)\n" * 3000, time.monotonic() + 5
    while time.monotonic() < deadline:
        compile(text, "text", "exec")


@pytest.mark.parametrize("work", [_in_code_that_ignores_errors, _at_the_end_of_an_object, _in_an_import])
def test_an_interruption_ends(work: Callable[[], None]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    # A thread of this process would have to wait for the compiler.
    command = ["/bin/sh", "-c", f"sleep 0.3; kill -TERM {os.getpid()}"]
    with subprocess.Popen(command), pytest.raises(Interruption, match="asked to end"), interruptible():
        work()
    assert signal.getsignal(signal.SIGTERM) is before
