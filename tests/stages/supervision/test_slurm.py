"""Slurm as a scheduler: what its commands do on a real one of two nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_cluster
from free_ports import free_ports
from small_dataset import small_recipe
from waiting import wait_until

from podline.base.errors import SettingsError, WorkerLostError
from podline.settings.machine import Settings
from podline.stages.specs import TrainSpec
from podline.stages.supervision.job import run_as_job
from podline.stages.supervision.slurm import ScheduledJob, Slurm

ROOT = "/a root"


def test_a_machine_without_slurm_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match="launch=slurm: the program squeue was not found; install Slurm's commands"):
        Slurm().find("run", ROOT)


def test_a_scheduler_that_does_not_answer_is_no_refusal_and_an_ended_job_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def answer(text: str) -> None:
        for program in ("sbatch", "scancel"):
            (tmp_path / program).write_text(f"#!/bin/sh\n{text and f'echo {text} >&2'}\nexit 1\n")
            (tmp_path / program).chmod(0o755)

    answer("error: Batch job submission failed: Unable to contact slurm controller '(connect failure)'")
    with pytest.raises(WorkerLostError, match=r"sbatch: got '.*connect failure\)', expected a job id; check that"):
        Slurm().submit("t-1", ROOT, ["true"], Settings(), str(tmp_path / "out"))
    with pytest.raises(WorkerLostError, match=r"scancel: got '.*connect failure\)', expected no error; check that"):
        Slurm().cancel("1")
    answer("")
    Slurm().cancel("1")


def test_a_store_in_a_bucket_is_refused() -> None:
    spec = TrainSpec(root="gs://bucket/a", recipe=small_recipe(), fingerprint="f")
    with pytest.raises(SettingsError, match=r"launch=slurm: got root=gs://bucket/a, expected a folder that all hosts"):
        run_as_job(spec, lambda _event: None, Settings(launch="slurm"), lambda: False)


def test_a_strategy_that_a_job_does_not_use_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    warnings: list[str] = []
    for strategy in ("cpu:2", "auto"):
        spec = TrainSpec(root=str(tmp_path), recipe=small_recipe(), fingerprint="f", strategy=strategy)
        with pytest.raises(SettingsError):
            run_as_job(spec, lambda event: warnings.append(event.get("message", "")), Settings(launch="slurm"), bool)
    told = "strategy=cpu:2 has no effect: launch=slurm trains with strategy=workers"
    assert [each for each in warnings if each] == [told]


@pytest.fixture
def two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the output of jobs of a new Slurm, which this process's commands use."""
    if slurm_cluster.missing():
        pytest.skip(f"needs {', '.join(slurm_cluster.missing())}")
    (tmp_path / "slurm").mkdir()
    with slurm_cluster.slurm(tmp_path / "slurm", free_ports(3)) as environment:
        monkeypatch.setenv("SLURM_CONF", environment["SLURM_CONF"])
        yield tmp_path


def test_a_job_is_submitted_found_and_cancelled(two_nodes: Path) -> None:
    command = ["sh", "-c", "echo on $SLURM_PROCID of $1, it\\'s $PODLINE_CLUSTER_PORT; exec sleep $2", "-", "{job}"]
    output = str(two_nodes / "{job} out")
    assert Slurm().find("t-1", ROOT) is None
    number = Slurm().submit("t-1", ROOT, [*command, "600"], Settings(hosts="2..4"), output)
    second = Slurm().submit("t-1", ROOT, [*command, "0"], Settings(hosts="2"), output)

    def state(root: str = ROOT) -> ScheduledJob | None:
        return Slurm().find("t-1", root)

    # Not at the same time as the first.
    newest = state()
    assert newest is not None
    assert (newest.number, newest.state, newest.goes_on) == (second, "PENDING", True)
    assert state("/another root") is None

    said = Path(output.format(job=number))
    wait_until(lambda: said.exists() and len(said.read_text().splitlines()) == 2)
    port = 20000 + int(number) * 100
    assert sorted(said.read_text().splitlines()) == [f"on {place} of {number}, it's {port}" for place in (0, 1)]
    Slurm().cancel(number)
    wait_until(lambda: (job := state()) is not None and job.ended)
    assert state() == (second, "COMPLETED", "None")


def test_what_slurm_refuses_is_one_line(two_nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "none")
    refused = r"sbatch: got '.*[Ii]nvalid partition.*', expected a job id; correct hosts='' or sbatch's variables"
    with pytest.raises(SettingsError, match=refused):
        Slurm().submit("t-1", ROOT, ["true"], Settings(), str(two_nodes / "out"))
    (two_nodes / "slurm" / "slurm.conf").write_text("ClusterName=test\nSlurmctldHost=localhost\nSlurmctldPort=1\n")
    with pytest.raises(WorkerLostError, match=r"squeue: got '.*', expected a list of jobs; check that"):
        Slurm().find("t-1", ROOT)
