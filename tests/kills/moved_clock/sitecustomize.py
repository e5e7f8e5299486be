"""Moves ``time.time`` of every interpreter that finds this by ``PYTHONPATH``; see test_backward_clock.py.

libfaketime cannot do it: with it, ``time.sleep`` fails unless the monotonic clock is moved as well.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_real, _moved = time.time, Path(os.environ["MOVED_CLOCK"])


def _time() -> float:
    return _real() + float(_moved.read_text())


time.time = _time
