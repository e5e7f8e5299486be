"""What a TPU can do to a run, end to end: the real flow, a real server, real children, the stand-in, a turned clock.

The model's part is played by a stage that takes a step every 0.3 s; each step that it tells of turns the clock by 20 s.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from small_flow_stages import FLOW_STAGES, STEPS, convert, ran, validate
from standin.cloud import NODE, Cloud
from standin.servers import announcing, serving
from standin.timeline import EXPIRED_MESSAGE, Announcement, Outage, Script, life

from flows.cifar_training import cifar_training
from podline import errors
from podline.data.sources.sample import write_sample
from podline.progress import Reporter
from podline.stages import STAGES, ConvertSpec, ValidateSpec, manifest_sha256
from podline.storage import open_store
from podline.tpu.clock import TurnedClock
from tasks import tpu_use
from tasks.listening import heard_by
from tasks.parameters import CifarParameters

TESTS = Path(__file__).parent.parent
HOLDS = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); "

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]


@dataclass
class Night:
    """One night: a flow's parameters, and the world that it runs in."""

    folder: Path
    clock: TurnedClock
    cloud: Cloud
    parameters: CifarParameters
    warnings: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Runs the flow; every step turns the clock."""
        with heard_by(self._hear):
            cifar_training(self.parameters)

    def _hear(self, event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["stage"] == "train":
            self.clock.turn(20)
        if event.get("level") == "warning":
            self.warnings.append(event["message"])

    @property
    def events(self) -> list[str]:
        """The kinds of what happened to the TPU until the training was done, as the run's folder tells them."""
        (file,) = self.root.glob("runs/*/tpu.json")
        told = [entry["event"] for entry in json.loads(file.read_text())]
        return told[1 : [*told[1:], "begin"].index("begin") + 1]

    @property
    def root(self) -> Path:
        """The store."""
        return Path(self.parameters.root)

    @property
    def trained(self) -> int:
        """How often a training was started."""
        return ran(self.parameters.root).count("train")

    def verbs(self) -> list[str]:
        """What was done to the node."""
        return [verb for _at, verb, _node in self.cloud.calls]

    def ended_well(self) -> bool:
        """Whether the weights are those of a run that nothing disturbed, and the table is on the run."""
        (weights,) = self.root.glob("runs/*/weights")
        with get_client(sync_client=True) as client:
            run = max(client.read_flow_runs(), key=lambda run: run.created)
            ours = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
            tables = [artifact for artifact in client.read_artifacts(artifact_filter=ours) if artifact.key == "tpu"]
        return json.loads(weights.read_text()) == list(range(STEPS)) and bool(tables)


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes nights: ``with night(script, machine=…) as it``."""
    monkeypatch.setenv("PYTHONPATH", f"{TESTS.parent}{os.pathsep}{TESTS}")
    stages = {**FLOW_STAGES, "train": replace(FLOW_STAGES["train"], run_at="small_flow_stages:train_in_steps")}
    for name, stage in stages.items():
        monkeypatch.setitem(STAGES, name, stage)
    for error in (errors.TpuUnhealthyError, errors.TpuGoneError, errors.TpuInUseError, errors.HangError):
        monkeypatch.setattr(error, "retry_delays", (0.1, 0.1))
    monkeypatch.setattr(errors.ChildKilledError, "retry_delays", (0.1, 0.1))
    write_sample(tmp_path / "drawn", train=50, test=20)
    root = tmp_path / "root"
    root.mkdir()
    _convert(str(root), str(tmp_path / "drawn"))
    tpu_use.make_limit()

    @contextlib.contextmanager
    def nights(
        script: Script | None = None, *, machine: bool = False, announced: tuple[Announcement, ...] = ()
    ) -> Iterator[Night]:
        clock = TurnedClock(1_800_000_000.0)
        cloud = Cloud(clock, script or Script())
        monkeypatch.setattr(tpu_use, "CLOCK", clock)
        with serving(cloud) as address, announcing(clock, announced) as metadata:
            lines = ["hang_floor = 2", "[tpu]", f'node = "{NODE}"', f'folder = "{tmp_path}"', "[tpu.api]"]
            lines += ['project = "test-project"', 'zone = "us-central2-b"', f'endpoint = "{address}"']
            lines += ["insecure = true", "[tpu.spec]", 'accelerator_type = "v4-8"', 'runtime_version = "tpu-vm"']
            if machine:
                lines += ["[tpu.machine]", f'lock_file = "{tmp_path}/lock"', "devices = []"]
                lines += [f'metadata_address = "{metadata}"']
            (tmp_path / "podline.toml").write_text("\n".join(lines))
            monkeypatch.setenv("PODLINE_SETTINGS", str(tmp_path / "podline.toml"))
            parameters = CifarParameters(recipe="sample", source=str(tmp_path / "drawn"), root=str(root), steps=1)
            yield Night(tmp_path, clock, cloud, parameters)

    return nights


def _convert(root: str, source: str) -> None:
    """What comes before the training, done here, without a process of its own: the flow finds it."""
    reporter = Reporter("convert", lambda _event: None)
    converted = convert(ConvertSpec(root=root, dataset="sample", source=source), reporter)
    manifest = manifest_sha256(open_store(root), converted.folder)
    spec = ValidateSpec(root=root, dataset="sample", fingerprint=converted.fingerprint, manifest_sha256=manifest)
    validate(spec, reporter)


def test_unhealthy_at_the_start_is_waited_for(night: Any) -> None:
    with night(Script(life=life("READY/UNHEALTHY_TENSORFLOW 600, READY/HEALTHY"))) as it:
        it.run()
    assert it.events == ["wait", "go", "leave"]
    assert (it.trained, it.verbs()) == (1, [])
    assert it.ended_well()


def test_unhealthy_in_the_middle_is_left_with_a_checkpoint_restarted_and_gone_on_with(night: Any) -> None:
    with night(Script(life=life("READY/HEALTHY 60, READY/UNHEALTHY_TENSORFLOW"))) as it:
        it.run()
    assert it.events == ["go", "leave", "wait", "restart", "go", "leave"]
    assert (it.trained, it.verbs()) == (2, ["stop", "start"])
    assert any("UNHEALTHY_TENSORFLOW" in line and "trying again" in line for line in it.warnings)
    assert it.ended_well()


def test_a_preemption_with_notice_is_left_with_a_checkpoint(night: Any) -> None:
    with night(machine=True, announced=(Announcement(60, "preempted", "TRUE", end=600),)) as it:
        it.run()
    assert it.events == ["go", "leave", "wait", "go", "leave"]
    assert it.trained == 2
    assert any("trying again in about 0.1 s (1 of 2)" in line for line in it.warnings)
    assert it.ended_well()


def test_a_preemption_without_notice_is_gone_on_with_on_a_new_node(night: Any) -> None:
    with night(Script(life=life("READY/HEALTHY 110, PREEMPTED"))) as it:
        it.run()
    assert it.events == ["go", "leave", "replace", "go", "leave"]
    assert (it.trained, it.verbs()) == (2, ["delete", "create"])
    assert it.ended_well()


def test_a_hang_on_a_node_that_says_healthy_restarts_it(night: Any) -> None:
    with night() as it:
        (it.root / "at-6").write_text("hang")
        it.run()
    assert it.events == ["go", "hang", "restart", "go", "leave"]
    assert (it.trained, it.verbs()) == (2, ["stop", "start"])
    assert it.ended_well()


def test_an_api_that_is_away_for_ten_minutes_ends_no_training(night: Any) -> None:
    with night(Script(outages=(Outage(60, 660),))) as it:
        it.run()
    assert (it.trained, it.events) == (1, ["go", "leave"])
    assert it.ended_well()


def test_credentials_that_have_expired_fail_at_once_in_one_line(night: Any) -> None:
    script = Script(outages=(Outage(0, 1e9, code_pb2.UNAUTHENTICATED, EXPIRED_MESSAGE),))
    with night(script) as it, pytest.raises(errors.CredentialsError, match="log in again") as caught:
        it.run()
    assert "\n" not in str(caught.value)
    assert (it.trained, it.events) == (0, ["give up"])


def test_a_lock_that_a_living_process_holds_is_waited_for_and_never_taken(night: Any) -> None:
    with night(machine=True) as it:
        command = [sys.executable, "-c", HOLDS + "time.sleep(300)", str(it.folder / "lock")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            try:
                with pytest.raises(errors.TpuInUseError, match="a living process has it"):
                    it.run()
            finally:
                holder.kill()
        assert it.trained == 0
        assert it.events == ["wait", "give up"] * 3
        it.run()
    assert it.ended_well()


def test_a_lock_that_a_dead_process_left_is_removed(night: Any) -> None:
    with night(machine=True) as it:
        (it.folder / "lock").touch()
        it.run()
        assert not (it.folder / "lock").exists()
    assert it.trained == 1
    assert it.events == ["lock", "go", "leave"]
    assert it.ended_well()


def test_a_child_that_the_kernel_kills_is_gone_on_with(night: Any) -> None:
    with night() as it:
        (it.root / "at-6").write_text("die")
        it.run()
    assert it.trained == 2
    assert it.events == ["go", "leave", "wait", "go", "leave"]
    assert it.verbs() == []
    assert it.ended_well()


def test_a_label_out_of_range_fails_at_once_and_restarts_nothing(night: Any) -> None:
    with night() as it:
        (it.root / "at-6").write_text("InvalidArgumentError")
        with pytest.raises(errors.ArtifactError, match="a label that the model has no class for"):
            it.run()
        assert it.clock.now() < 1_800_000_200
    assert (it.trained, it.verbs()) == (1, [])
    assert it.events == ["go", "leave"]
