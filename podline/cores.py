"""Counts the cores that this process may use, by its affinity and the quotas of its control groups.

A container with two of 64 cores has a quota but no affinity: 64 processes would share two cores.
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
        groups: mount point of control groups.
        own: the file with the names of this process's groups.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min([affinity, *_quotas(groups, own)])))


def _quotas(groups: Path, own: Path) -> list[float]:
    """Return the quotas of this process's group and of its parents, in cores.

    ``cpu.max`` belongs to version 2 of control groups, ``cpu.cfs_quota_us`` to version 1:
    https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/scheduler/sched-bwc.html
    """
    quotas: list[float] = []
    for group in control_groups(groups, own):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quotas.append(_quota(group))
    return [quota for quota in quotas if quota > 0]


def control_groups(groups: Path = GROUPS, own: Path = OWN) -> Iterator[Path]:
    """Yield the possible folders of the CPU controller for this process's group and its parents."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = own.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        root = groups if not controllers else groups / "cpu"
        if controllers and "cpu" not in controllers.split(","):
            continue
        inner = PurePosixPath(path.lstrip("/"))
        # In a container the path may be that of the host.
        yield from (root / folder for folder in {inner, *inner.parents, PurePosixPath()})


def _quota(group: Path) -> float:
    """Return a group's quota.

    Raises:
        OSError: the group has no quota.
        ValueError: the quota is ``max``.
    """
    if (group / "cpu.max").exists():
        quota, period = (group / "cpu.max").read_text().split()
    else:
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    return int(quota) / int(period)
