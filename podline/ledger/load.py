"""Measures the CPU time that other processes, the quota of the control group and the hypervisor take from a process."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple

from podline.base.cores import control_groups
from podline.documents.ledger_entry import Load

STAT = Path("/proc/stat")
# Fields of a line of /proc/stat, see proc(5); user time includes the time of guests.
_BUSY, _STOLEN = (1, 2, 3, 6, 7), 8


class _Counters(NamedTuple):
    """The counters at time ``at``, in seconds; ``periods`` and ``throttled`` count quota periods."""

    at: float
    own: float
    busy: float
    stolen: float
    periods: int
    throttled: int


class LoadMeter:
    """Measures the CPU load since the meter was created."""

    def __init__(self) -> None:
        self._groups = list(control_groups())
        self._before = self._read()

    def load(self) -> Load | None:
        """Return the load since the meter was created; None if the kernel has no counters."""
        before, now = self._before, self._read()
        if before is None or now is None or now.at <= before.at:
            return None
        _, own, busy, stolen, periods, throttled = (after - earlier for after, earlier in zip(now, before, strict=True))
        seconds = now.at - before.at
        return Load(
            cores=os.cpu_count() or 1,
            own=round(own / seconds, 2),
            others=round(max(0.0, busy - own) / seconds, 2),
            stolen=round(stolen / seconds, 2),
            throttled=round(throttled / periods, 2) if periods else 0.0,
        )

    def _read(self) -> _Counters | None:
        try:
            ticks = [int(field) for field in STAT.read_text().split("\n", 1)[0].split()[1:]]
            busy, stolen = (sum(ticks[field - 1] for field in fields) for fields in (_BUSY, (_STOLEN,)))
        except (OSError, ValueError, IndexError):
            return None
        tick = 1 / os.sysconf("SC_CLK_TCK")
        # Of nested groups, the most throttled one limits this process.
        periods, throttled = max(map(_periods, self._groups), key=lambda counted: counted[1], default=(0, 0))
        return _Counters(time.monotonic(), sum(os.times()[:4]), tick * busy, tick * stolen, periods, throttled)


def _periods(group: Path) -> tuple[int, int]:
    """Return the numbers of quota periods and of throttled periods of a control group; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        counted = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        return int(counted["nr_periods"]), int(counted["nr_throttled"])
    return 0, 0
