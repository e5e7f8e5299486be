"""A clock that goes backward between commands, and while one runs: nothing is lost, nothing young is deleted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compared_files import comparable, differences
from raw_material import write_grey_cifar

from podline.documents.metrics_log import read_events, read_metrics
from podline.inventory.verification import verify
from podline.ledger import ledger
from podline.progress import silent
from podline.store.opening import open_store

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
RECIPE = (
    *("--steps", "300", "--batch-size", "16", "--model", "linear", "--learning-rate", "0.01"),
    *("--set", "deterministic=true", "--set", "checkpoint_steps=5"),
)
DAY = 86_400


class Machine:
    """Commands on a machine whose clock is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.root, self._clock = folder / "root", folder / "clock"
        self._source = write_grey_cifar(folder / "raw")
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PODLINE_"))},
            "PYTHONPATH": str(Path(__file__).with_name("moved_clock")),
            "MOVED_CLOCK": str(self._clock),
        }

    def set_clock(self, days: float) -> None:
        """So many days from the true time."""
        beside = self._clock.with_suffix(".new")
        beside.write_text(str(days * DAY))
        beside.replace(self._clock)

    def start(self, *words: str) -> subprocess.Popen[str]:
        spec = {"dataset": "cifar10", "source": str(self._source), "root": str(self.root), "shard_bytes": 300_000}
        process = subprocess.Popen(
            [sys.executable, "-m", "podline.cli", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(spec))
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, *words: str) -> str:
        process = self.start(*words)
        said = process.communicate(timeout=600)[0]
        assert (process.returncode, "Traceback" in said) == (0, False), said
        # A duration in words or figures.
        assert not re.search(r"(?<![\w.-])-\d+(\.\d+)? (s|min|h)\b", said), said
        return said


def nights(machine: Machine, *, days: tuple[float, ...], back: bool) -> None:
    """Convert, train, evaluate and report, each on a day; ``back`` sets the clock back while the training runs."""
    given = ("cifar10", *RECIPE, "--root", str(machine.root))
    machine.set_clock(days[0])
    machine.run("convert", "--spec", "-")
    machine.set_clock(days[1])
    training = machine.start("train", *given)
    if back:
        wait_for_a_checkpoint(machine.root)
        machine.set_clock(days[2])
    said = training.communicate(timeout=600)[0]
    assert (training.returncode, "Traceback" in said) == (0, False), said
    for stage, day in zip(("evaluate", "report"), days[3:], strict=True):
        machine.set_clock(day)
        machine.run(stage, *given)


def wait_for_a_checkpoint(root: Path) -> None:
    deadline = time.monotonic() + 300
    while not list(root.glob("runs/*/checkpoints/*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_clock_that_goes_backward_changes_no_bytes_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "steady").mkdir()
    (tmp_path / "back").mkdir()
    steady, back = (Machine(tmp_path / name) for name in ("steady", "back"))
    nights(steady, days=(0, 0, 0, 0, 0), back=False)
    nights(back, days=(0, -3, -20, -30, -40), back=True)
    store = open_store(back.root)
    assert differences(comparable(store), comparable(open_store(steady.root))) == []
    [named] = ledger.names(store)
    entry = ledger.read(store, named.name)
    assert entry.ended >= entry.began
    assert all(stage.seconds >= 0 for stage in entry.stages.values())
    events = read_events(store.local(f"runs/{entry.run}/events.jsonl"))
    assert events[-1].time < events[0].time - 10 * DAY  # the clock did go back meanwhile
    for line in read_metrics(store.local(f"runs/{entry.run}/metrics.jsonl")):
        assert getattr(line, "seconds", 0.0) >= 0
    # A night after that on an earlier day: found done, noted, and the list has both.
    back.set_clock(-50)
    back.run("train", "cifar10", *RECIPE, "--root", str(back.root))
    assert entry.run in back.run("runs", "list", "--root", str(back.root))
    # Files are from the future now. Nothing of them is old, be it finished or not.
    store.publish_json("runs/cifar10-unfinished/spec.json", {})
    assert "0 folders" in back.run("store", "prune", "--yes", "--root", str(back.root))
    assert store.exists("runs/cifar10-unfinished/spec.json")
    store.delete("runs/cifar10-unfinished/spec.json")
    assert verify(store, silent())[1] == []
    assert list((store.scratch / "tmp").iterdir()) == []
