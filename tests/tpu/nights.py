"""Nights: the real flow on a real server, real children, the stand-in for Google's cloud, a clock that is turned.

The model's part is played by a stage that takes a step every 0.3 s; each step that it tells of turns the clock by 20 s.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from small_flow_stages import STEPPING_STAGES, STEPS, convert, evaluate, ran, report, trained, validate
from standin.cloud import NODE, Cloud
from standin.servers import announcing, serving
from standin.timeline import Announcement, Script
from turned_clock import TurnedClock

from podline import errors
from podline.data.sources.sample import write_sample
from podline.flows.training import training
from podline.progress import Reporter
from podline.settings import Settings
from podline.stages.completed import manifest_sha256
from podline.stages.from_recipe import evaluation_spec, training_spec
from podline.stages.specs import ConvertSpec, ReportSpec, ValidateSpec
from podline.stages.table import STAGES
from podline.store.opening import open_store
from podline.tasks.node import tpu_lease, tpu_use
from podline.tasks.parameters import MachineGroup, TrainingForm, TrainingGroup
from podline.tasks.runs.listening import heard_by

TESTS = Path(__file__).parent.parent
EVENING = 1_800_000_000.0


@dataclass
class Night:
    """One night: a flow's parameters, and the world that it runs in."""

    folder: Path
    clock: TurnedClock
    cloud: Cloud
    parameters: TrainingForm
    turn: float
    """By how many seconds each progress of the training turns the clock."""
    lines: list[str] = field(default_factory=list)
    at_step: Callable[[int], None] = lambda _step: None

    def run(self) -> None:
        """Runs the flow; every step turns the clock."""
        with heard_by(self._hear):
            training(self.parameters)

    def _hear(self, event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["stage"] == "train":
            self.clock.turn(self.turn)
            self.at_step(event["done"])
        if event["event"] == "log":
            self.lines.append(event["message"])

    @property
    def root(self) -> Path:
        """The store."""
        return Path(self.parameters.machine.root)

    @property
    def told(self) -> list[dict[str, Any]]:
        """What happened to the TPU until the training was done, as the run's folder tells it."""
        (file,) = self.root.glob("runs/*/tpu.json")
        first, *entries = json.loads(file.read_text())["entries"]
        assert first["event"] == "begin"
        events = [entry["event"] for entry in entries]
        return entries[: [*events, "begin"].index("begin")]

    @property
    def events(self) -> list[str]:
        """The kinds of what happened."""
        return [entry["event"] for entry in self.told]

    @property
    def trained(self) -> int:
        """How often a training was started."""
        return ran(self.parameters.machine.root).count("train")

    def verbs(self) -> list[str]:
        """What was done to the node."""
        return [verb for _at, verb, _node in self.cloud.calls]

    def ended_well(self) -> bool:
        """Whether the weights are those of an undisturbed run, and the table on the run tells what happened."""
        (weights,) = self.root.glob("runs/*/weights")
        state, table = newest_run()
        return state.is_completed() and json.loads(weights.read_text()) == list(range(STEPS)) and self._tells(table)

    def failed_with(self, reason: str) -> bool:
        """Whether the run failed, said why in one line, and the table tells of it."""
        state, table = newest_run()
        assert state.message is not None
        assert reason in state.message, state.message
        return state.is_failed() and len(state.message.splitlines()) == 1 and self._tells(table)

    def _tells(self, table: Any) -> bool:
        rows = [row for row in json.loads(table) if row["event"] != "begin"] if table else []
        return [(row["event"], row["what"]) for row in rows[: len(self.told)]] == [
            (entry["event"], entry["what"]) for entry in sorted(self.told, key=lambda entry: entry["at"])
        ]


def newest_run() -> tuple[Any, Any]:
    """The state of the last flow run, and its table of what happened to the TPU."""
    with get_client(sync_client=True) as client:
        run = max(client.read_flow_runs(), key=lambda run: run.created)
        ours = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
        tables = [artifact for artifact in client.read_artifacts(artifact_filter=ours) if artifact.key == "sample-tpu"]
    newest = max(tables, key=lambda table: table.created, default=None)
    return run.state, newest.data if newest else None


class Nights:
    """Makes nights of the stages that step, in a store where all but the training is done."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, monkeypatch
        monkeypatch.setenv("PYTHONPATH", f"{TESTS.parent}{os.pathsep}{TESTS / 'support'}")
        for name, stage in STEPPING_STAGES.items():
            monkeypatch.setitem(STAGES, name, stage)
        hurry(monkeypatch)
        self.parameters = prepared(folder / "root", folder / "drawn")
        tpu_lease.make_limit()

    @contextlib.contextmanager
    def __call__(
        self, script: Script | None = None, *, machine: bool = False, announced: tuple[Announcement, ...] = ()
    ) -> Iterator[Night]:
        """One night."""
        with night(self.folder, self._patch, script, self.parameters, machine=machine, announced=announced) as it:
            yield it


@contextlib.contextmanager
def night(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: Script | None,
    parameters: TrainingForm,
    *,
    machine: bool = False,
    announced: tuple[Announcement, ...] = (),
    turn: float = 20.0,
) -> Iterator[Night]:
    """A stand-in that plays a script, and settings that name it."""
    clock = TurnedClock(EVENING)
    cloud = Cloud(clock, script or Script())
    monkeypatch.setattr(tpu_use, "CLOCK", clock)
    with serving(cloud) as address, announcing(clock, announced) as metadata:
        lines = settings_lines(folder, address)
        if machine:
            lines += ["[tpu.machine]", f'lock_file = "{folder}/lock"', "devices = []"]
            lines += [f'metadata_address = "{metadata}"']
        (folder / "podline.toml").write_text("\n".join(lines))
        monkeypatch.setenv("PODLINE_SETTINGS", str(folder / "podline.toml"))
        yield Night(folder, clock, cloud, parameters, turn)


def settings_lines(folder: Path, address: str, *limits: str) -> list[str]:
    """The settings of a machine with a TPU whose API is at an address."""
    lines = ["hang_floor = 2", "[tpu]", f'node = "{NODE}"', f'folder = "{folder}"', "[tpu.api]"]
    lines += ['project = "test-project"', 'zone = "us-central2-b"', f'endpoint = "{address}"', "insecure = true"]
    lines += ["[tpu.spec]", 'accelerator_type = "v4-8"', 'runtime_version = "tpu-vm"']
    return lines + (["[tpu.limits]", *limits] if limits else [])


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets no retry wait, by the delays that are real time."""
    kinds = (
        errors.TpuUnhealthyError,
        errors.TpuGoneError,
        errors.TpuInUseError,
        errors.TransientError,
        errors.ChildKilledError,
    )
    for error in kinds:
        monkeypatch.setattr(error, "retry_delays", (0.1, 0.1))


def prepared(root: Path, drawn: Path) -> TrainingForm:
    """Parameters of a flow that finds all done but the training: here, without a process of its own.

    What comes after it depends on the weights alone, and those are known.
    """
    write_sample(drawn, train=50, test=20)
    root.mkdir()
    parameters = TrainingForm(
        recipe="sample", source=str(drawn), training=TrainingGroup(steps=1), machine=MachineGroup(root=str(root))
    )
    recipe, given, strategy = (
        parameters.training_recipe(),
        {"root": str(root), "dataset": "sample"},
        Settings().strategy,
    )
    quiet = Reporter("prepare", lambda _event: None)
    converted = convert(ConvertSpec(**given, source=str(drawn)), quiet)
    data: dict[str, Any] = {**given, "fingerprint": converted.fingerprint}
    validate(ValidateSpec(**data, manifest_sha256=manifest_sha256(open_store(str(root)), converted.folder)), quiet)
    training = training_spec(open_store(str(root)), recipe, converted.fingerprint, strategy)
    weights = json.dumps(list(range(STEPS))).encode()
    evaluated = evaluate(evaluation_spec(training, trained(training, weights)), quiet)
    command = parameters.command(str(root))
    report(ReportSpec(**data, run=training.run, evaluation_sha256=evaluated.evaluation_sha256, command=command), quiet)
    return parameters
