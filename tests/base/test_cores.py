"""Cores and memory are those of this process's control groups, and no more than the machine has."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from podline.base import cores

Kernel = Callable[[str, dict[str, str]], None]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Write the names of this process's groups and the files of groups, on a machine of eight cores."""
    places = {"GROUPS": tmp_path / "groups", "OWN": tmp_path / "own"}
    for name, place in {**places, "MACHINE": tmp_path / "machine", "MEMORY": tmp_path / "machine"}.items():
        monkeypatch.setattr(cores, name, place)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "machine").write_text("oom_kill 7\nMemTotal:  9 kB\nMemFree:   3 kB\nMemAvailable:       7 kB\n")

    def write(own: str, files: dict[str, str]) -> None:
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "groups" / name).write_text(f"{text}\n")

    return write


@pytest.mark.parametrize(
    ("own", "files", "found"),
    [
        ("0::/", {}, 8),
        ("0::/", {"cpu.max": "250000 100000"}, 3),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2),
        ("0::/of/the/host", {"cpu.max": "20000 100000"}, 1),
        ("0::/", {"cpu.max": "6400000 100000"}, 8),
        ("4:cpu,cpuacct:/a\n3:memory:/a", {"cpu/a/cpu.cfs_quota_us": "400000", "cpu/a/cpu.cfs_period_us": "100000"}, 4),
    ],
)
def test_quotas(kernel: Kernel, own: str, files: dict[str, str], found: int) -> None:
    assert cores.usable_cores() == 8, "without groups"
    kernel(own, files)
    assert cores.usable_cores() == found


@pytest.mark.parametrize(
    ("own", "files", "kills"),
    [
        ("0::/a/b", {"a/b/memory.events": "low 0\noom 5\noom_kill 2", "a/memory.events": "oom_kill 9"}, 2),
        ("0::/of/the/host", {"memory.events": "oom 5\noom_kill 3\noom_group_kill 0"}, 3),
        ("4:memory:/a\n0::/", {"memory/a/memory.oom_control": "under_oom 0\noom_kill 4"}, 4),
        ("0::/", {}, 7),
    ],
)
def test_kills_for_memory_are_those_of_the_own_group(kernel: Kernel, own: str, files: dict, kills: int) -> None:
    kernel(own, files)
    assert cores.memory_kills() == kills
    cores.MACHINE.unlink()
    assert files or cores.memory_kills() == 0


@pytest.mark.parametrize(
    ("own", "folder", "files", "found"),
    [
        ("0::/a/b", "a", {"max": "5000", "current": "4000", "stat": "file 9\ninactive_file 300"}, (1300, 5000)),
        ("0::/a", "a", {"max": "max", "current": "4000"}, (7 << 10, 9 << 10)),
        ("4:memory:/a\n0::/", "memory/a", {"limit_in_bytes": "5000", "usage_in_bytes": "5000"}, (0, 5000)),
    ],
)
def test_free_memory_and_its_limit_are_the_least_of_the_machine_and_its_groups(kernel, own, folder, files, found):
    kernel(own, {f"{folder}/memory.{name}": text for name, text in files.items()})
    assert (cores.free_memory(), cores.memory_limit()) == found
