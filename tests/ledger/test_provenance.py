"""An entry names the code that ran by its content, and the load of the machine during a run."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from podline.base import cores
from podline.ledger import load, provenance
from podline.store import digests


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of a package of the same name."""
    top = tmp_path / "checkout"
    (top / "podline").mkdir(parents=True)
    (top / "podline" / "__init__.py").write_text("")
    (top / "podline" / "loop.py").write_text("steps = 1\n")
    (top / ".gitignore").write_text("*.pyc\n")
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "all")
    return top


def test_a_checkout_is_its_commit_and_the_content_of_what_differs(checkout: Path, monkeypatch) -> None:
    (checkout / "podline" / "loop.pyc").write_text("compiled")
    (checkout / "data").mkdir()
    (checkout / "data" / "notes.py").write_text("no code of ours")
    found = provenance.code(checkout)
    assert found.commit == git(checkout, "rev-parse", "HEAD")
    assert (found.changes, found.more_changes, found.sources) == ({}, 0, "")
    (checkout / "podline" / "loop.py").write_text("steps = 2\n")
    (checkout / "podline" / "new.py").write_text("new = 1\n")
    for gone in (".gitignore", "podline/loop.pyc"):
        (checkout / gone).unlink()
    found = provenance.code(checkout)
    assert found.changes == {
        ".gitignore": "",
        "podline/loop.py": digests.of_bytes(b"steps = 2\n")[:12],
        "podline/new.py": digests.of_bytes(b"new = 1\n")[:12],
    }
    git(checkout, "add", "--all", "podline", ".gitignore")
    assert provenance.code(checkout) == found
    monkeypatch.setenv("PATH", str(checkout))
    assert provenance.code(checkout).sources, "there is no git"


def test_a_package_below_somebody_elses_checkout_is_not_that_checkout(checkout: Path) -> None:
    installed = checkout / "venv" / "site-packages"
    (installed / "podline").mkdir(parents=True)
    (installed / "podline" / "__init__.py").write_text("version = 1\n")
    found = provenance.code(installed)
    assert (found.commit, len(found.sources)) == ("", 64)


def test_a_wheel_and_a_checkout_without_git_have_the_same_sources(tmp_path: Path) -> None:
    wheel, unpacked = tmp_path / "site-packages", tmp_path / "unpacked"
    for flows, top in ((wheel / "podline" / "flows", wheel), (unpacked / "flows", unpacked)):
        flows.mkdir(parents=True)
        (top / "podline").mkdir(exist_ok=True)
        (top / "podline" / "__init__.py").write_text("")
        (flows / "night.py").write_text("steps = 1\n")
    (unpacked / "podline" / "flows").symlink_to("../flows")
    first = provenance.code(wheel).sources
    assert first == provenance.code(unpacked).sources
    # Somebody else's package of the same name.
    (wheel / "tasks").mkdir()
    (wheel / "tasks" / "__init__.py").write_text("their = 1\n")
    assert provenance.code(wheel).sources == first
    (wheel / "podline" / "flows" / "night.py").write_text("steps = 2\n")
    assert provenance.code(wheel).sources != first


TICKS = os.sysconf("SC_CLK_TCK")


def count(folder: Path, *, user: float, stolen: float, periods: int, throttled: int) -> None:
    """Write the counters of a machine, in seconds."""
    (folder / "stat").write_text(f"cpu  {user * TICKS:.0f} 0 0 9 0 0 0 {stolen * TICKS:.0f} 0 0\ncpu0 0 0 0\n")
    (folder / "own").write_text("0::/a")
    (folder / "a").mkdir(exist_ok=True)
    (folder / "a" / "cpu.stat").write_text(f"usage_usec 1\nnr_periods {periods}\nnr_throttled {throttled}\n")


def test_the_load_is_what_others_use_the_hypervisor_takes_and_the_quota_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "STAT", tmp_path / "stat")
    monkeypatch.setattr(cores, "GROUPS", tmp_path)
    monkeypatch.setattr(cores, "OWN", tmp_path / "own")
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(os, "times", lambda: (clock[0] - 100.0, 0.0, 0.0, 0.0, 0.0))
    count(tmp_path, user=50, stolen=1, periods=10, throttled=1)
    meter = load.LoadMeter()
    clock[0] += 10
    count(tmp_path, user=90, stolen=6, periods=110, throttled=31)
    found = meter.load()
    assert (found.own, found.others, found.stolen, found.throttled) == (1.0, 3.0, 0.5, 0.3)
    for text in ("", "cpu 1 2\n", "cpu a b c d e f g h\n"):
        (tmp_path / "stat").write_text(text)
        assert load.LoadMeter().load() is None
