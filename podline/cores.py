"""The number of cores that this process may use, by its affinity and the quotas of its control groups.

A container that may use two of 64 cores has a quota and no affinity: 64 processes would take turns on two cores.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cores(groups: Path = GROUPS, own: Path = OWN) -> int:
    """Return the number of cores, rounded up; at least 1.

    Args:
        groups: where control groups are mounted.
        own: the file that names this process's groups.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min([affinity, *_quotas(groups, own)])))


def _quotas(groups: Path, own: Path) -> list[float]:
    """Return the quotas of this process's group and of those above it, in cores.

    ``cpu.max`` is of version 2 of control groups, ``cpu.cfs_quota_us`` of version 1:
    https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/scheduler/sched-bwc.html
    """
    quotas: list[float] = []
    for group in control_groups(groups, own):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quotas.append(_quota(group))
    return [quota for quota in quotas if quota > 0]


def control_groups(groups: Path = GROUPS, own: Path = OWN) -> Iterator[Path]:
    """Yield the folders in which the processor's controller of this process's group, and of those above it, may be."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = own.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        root = groups if not controllers else groups / "cpu"
        if controllers and "cpu" not in controllers.split(","):
            continue
        inner = PurePosixPath(path.lstrip("/"))
        # In a container the path may be the host's.
        yield from (root / folder for folder in {inner, *inner.parents, PurePosixPath()})


def _quota(group: Path) -> float:
    """Return a group's quota.

    Raises:
        OSError: it has none.
        ValueError: it is ``max``.
    """
    if (group / "cpu.max").exists():
        quota, period = (group / "cpu.max").read_text().split()
    else:
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    return int(quota) / int(period)
