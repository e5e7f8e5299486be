"""A training behind the gate, end to end, with one thing that goes wrong: it ends as if nothing had been, or says why.

The gate, the watch and the child process are real; Google's cloud is the stand-in. A stage plays the model's part: it
takes a step every 0.3 s, and each step that it tells of turns the clock by 20 s.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from small_flow_stages import STEPPING_STAGES, STEPS, ran
from standin.bench import NOON, bench
from standin.cloud import Cloud
from standin.servers import announcing
from standin.timeline import NO_QUOTA, Announcement, Attempt, Outage, Script, life
from turned_clock import TurnedClock

from podline.base import errors
from podline.base.errors import Budgets
from podline.base.progress import Event
from podline.recipes import registry
from podline.settings.machine import Settings
from podline.settings.tpu_settings import MachineSettings
from podline.stages.specs import TrainSpec
from podline.stages.supervision.running import perform
from podline.stages.table import STAGES
from podline.store.opening import open_store
from podline.tpu.tpu_log import TpuLogEntry, read_tpu_log

QUOTA_LATE = Script(life=life("READY/HEALTHY 110, PREEMPTED"), creates=(NO_QUOTA, NO_QUOTA, Attempt(120)))
NOTICE = Announcement(60, "preempted", "TRUE", end=600)
MAINTAINED = Script(life=life("READY/HEALTHY 60, READY/UNHEALTHY_MAINTENANCE"))

pytestmark = pytest.mark.slow


@dataclass
class Night:
    """One training with its retries, and the world that it runs in."""

    spec: TrainSpec
    machine: Settings
    clock: TurnedClock
    cloud: Cloud
    lines: list[str] = field(default_factory=list)

    def run(self) -> None:
        budgets, attempt = Budgets(), 1
        while True:
            try:
                perform(self.spec, self._hear, self.machine, attempt=attempt, clock=self.clock)
            except errors.PodlineError as error:
                if budgets.after(error) is None:
                    raise
                attempt += 1
            else:
                return

    def _hear(self, event: Event) -> None:
        if event["event"] == "progress":
            self.clock.turn(20.0)
        if event["event"] == "log":
            self.lines.append(event["message"])

    @property
    def entries(self) -> list[TpuLogEntry]:
        first, *entries = read_tpu_log(open_store(self.spec.root), self.spec.folder)
        assert first.event == "begin"
        return entries

    def seen(self) -> tuple[str, str, int]:
        """What happened, what was done to the node, and how often a training was started."""
        events = " ".join(str(entry.event) for entry in self.entries)
        return events, " ".join(self.cloud.calls), ran(self.spec.root).count("train")

    def is_whole(self) -> bool:
        """Whether the weights are those of an undisturbed training."""
        weights = open_store(self.spec.root).read_bytes(f"{self.spec.folder}/weights")
        return json.loads(weights) == list(range(STEPS))


@pytest.fixture
def night(tmp_path: Path, in_children: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes nights: ``with night(script, announcement) as it``."""
    monkeypatch.setitem(STAGES, "train", STEPPING_STAGES["train"])

    @contextlib.contextmanager
    def nights(script: Script | None = None, *announced: Announcement) -> Iterator[Night]:
        clock = TurnedClock(NOON)
        with announcing(clock, announced) as metadata:
            machine = MachineSettings(lock_file=f"{tmp_path}/lock", metadata_address=metadata) if announced else None
            with bench(tmp_path, script, clock, machine=machine) as it:
                spec = TrainSpec(
                    root=str(tmp_path / "root"),
                    recipe=registry.get("sample"),
                    fingerprint="0" * 64,
                    manifest_digest="0" * 64,
                    strategy="cpu",
                )
                Path(spec.root).mkdir()
                yield Night(spec, Settings(hang_floor=2.0, tpu=it.settings), clock, it.cloud)

    return nights


@pytest.mark.parametrize(
    ("world", "act", "events", "calls", "trainings"),
    [
        ((MAINTAINED,), "", "go leave wait restart go leave", "stop start", 2),
        ((QUOTA_LATE,), "", "go leave wait replace go leave", "delete create create create", 2),
        ((Script(), NOTICE), "", "go leave wait go leave", "", 2),
        ((Script(),), "hang", "go hang restart go leave", "stop start", 2),
        ((Script(),), "die", "go leave wait go leave", "", 2),
        ((Script(outages=(Outage(60, 660),)),), "", "go leave", "", 1),
    ],
    ids=[
        "under maintenance",
        "preempted",
        "end announced",
        "hang on a healthy node",
        "killed by the kernel",
        "API away",
    ],
)
def test_it_ends_as_if_nothing_had_been(
    night: Any, world: tuple[Any, ...], act: str, events: str, calls: str, trainings: int
) -> None:
    with night(*world) as it:
        if act:
            (Path(it.spec.root) / "at-6").write_text(act)
        it.run()
        assert it.seen() == (events, calls, trainings)
    assert it.is_whole()
    assert NOTICE not in world or "the machine is being preempted" in it.entries[1].what
