"""What is counted is named: by planted counters, and by real processes beside this one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from podline.ledger.load import LoadMeter

TICKS = os.sysconf("SC_CLK_TCK")


def count(folder: Path, *, user: float = 0.0, stolen: float = 0.0, periods: int = 0, throttled: int = 0) -> None:
    """Write the counters of a machine, in seconds."""
    (folder / "stat").write_text(f"cpu  {user * TICKS:.0f} 0 0 9 0 0 0 {stolen * TICKS:.0f} 0 0\ncpu0 0 0 0\n")
    (folder / "own").write_text("0::/a")
    (folder / "a").mkdir(exist_ok=True)
    (folder / "a" / "cpu.stat").write_text(f"usage_usec 1\nnr_periods {periods}\nnr_throttled {throttled}\n")


def meter_of(folder: Path) -> LoadMeter:
    return LoadMeter(folder / "stat", folder, folder / "own")


def test_what_others_use_the_hypervisor_takes_and_the_quota_stops(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(os, "times", lambda: (clock[0] - 100.0, 0.0, 0.0, 0.0, 0.0))
    count(tmp_path, user=50, stolen=1, periods=10, throttled=1)
    meter = meter_of(tmp_path)
    clock[0] += 10
    count(tmp_path, user=90, stolen=6, periods=110, throttled=31)
    load = meter.load()
    assert load is not None
    assert (load.own, load.others, load.stolen, load.throttled) == (1.0, 3.0, 0.5, 0.3)


@pytest.mark.parametrize("text", ["", "cpu 1 2\n", "cpu a b c d e f g h\n"])
def test_a_machine_that_counts_nothing_has_no_load(tmp_path, text):
    (tmp_path / "stat").write_text(text)
    assert meter_of(tmp_path).load() is None
    assert LoadMeter(tmp_path / "nowhere").load() is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no counters of the kernel")
def test_a_real_process_beside_this_one_is_counted_as_another():
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        meter = LoadMeter()
        time.sleep(1)
        load = meter.load()
    finally:
        busy.kill()
        busy.wait()
    assert load is not None
    assert load.others > 0.3
    assert load.own < 0.5
