"""Reads from Linux control groups how many cores and bytes this process may use, and counts out-of-memory kills.

A container with two of 64 cores has a quota but no affinity: 64 processes would share two cores.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

# The mount point of control groups, the names of this process's groups, and the counts and memory of the whole machine.
GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
MACHINE, MEMORY = Path("/proc/vmstat"), Path("/proc/meminfo")
_AVAILABLE = re.compile(r"^MemAvailable: +(\d+) kB$", re.MULTILINE)
_TOTAL = re.compile(r"^MemTotal: +(\d+) kB$", re.MULTILINE)
# Files with the memory limit and the memory in use, and the key in memory.stat of the cache that the kernel can drop:
# for versions 2 and 1 of control groups.
_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def usable_cores() -> int:
    """Return the number of cores that this process may use, rounded up; at least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min([affinity, *_quotas()])))


def memory_kills() -> int:
    """Return how many processes the kernel killed because memory ran out; 0 if unknown.

    ``memory.events`` belongs to version 2 of control groups, ``memory.oom_control`` to version 1.
    """
    counts = [group / name for group in control_groups("memory") for name in ("memory.events", "memory.oom_control")]
    found = (_KILLS.search(_text(count)) for count in [*counts, MACHINE])
    return next((int(kills[1]) for kills in found if kills), 0)


def free_memory() -> int:
    """Return the free bytes of this process's groups and the machine, with droppable file caches; 0 if unknown."""
    found = [1024 * int(kilobytes) for kilobytes in _AVAILABLE.findall(_text(MEMORY))]
    for group in control_groups("memory"):
        for limit, used, cached in _MEMORY_FILES:
            numbers = [_text(group / limit).strip(), _text(group / used).strip()]
            if all(map(str.isdecimal, numbers)):
                inactive = re.search(rf"^{cached} (\d+)$", _text(group / "memory.stat"), re.MULTILINE)
                found.append(int(numbers[0]) - int(numbers[1]) + int(inactive[1] if inactive else 0))
    return min(found, default=0)


def memory_limit() -> int:
    """Return the lowest memory limit of this process's groups and the machine, in bytes; 0 if unknown."""
    found = [1024 * int(kilobytes) for kilobytes in _TOTAL.findall(_text(MEMORY))]
    for group in control_groups("memory"):
        limits = (_text(group / limit).strip() for limit, _, _ in _MEMORY_FILES)
        found += [int(limit) for limit in limits if limit.isdecimal()]
    return min(found, default=0)


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text()
    return ""


def _quotas() -> list[float]:
    """Return the CPU quotas of this process's group and of its parent groups, in cores.

    ``cpu.max`` belongs to version 2 of control groups, ``cpu.cfs_quota_us`` to version 1:
    https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/scheduler/sched-bwc.html
    """
    quotas: list[float] = []
    for group in control_groups():
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quotas.append(_quota(group))
    return [quota for quota in quotas if quota > 0]


def control_groups(controller: str = "cpu") -> Iterator[Path]:
    """Yield the folders that a controller may have for this process's group, then those for its parent groups."""
    for line in _text(OWN).splitlines():
        _, controllers, path = line.split(":", 2)
        root = GROUPS if not controllers else GROUPS / controller
        if controllers and controller not in controllers.split(","):
            continue
        inner = PurePosixPath(path.lstrip("/"))
        # In a container the path may be that of the host.
        yield from (root / folder for folder in dict.fromkeys((inner, *inner.parents, PurePosixPath())))


def _quota(group: Path) -> float:
    """Return a group's CPU quota in cores.

    Raises:
        OSError: the group has no quota.
        ValueError: the quota is ``max``.
    """
    if (group / "cpu.max").exists():
        quota, period = (group / "cpu.max").read_text().split()
    else:
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    return int(quota) / int(period)
