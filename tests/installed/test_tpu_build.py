"""TensorFlow's build for TPUs, tried without a TPU: deployments/tpu.lock in an environment of its own, on the CPU."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from installed import Installed, build_wheel, install
from waiting import wait_until

# Without it, the first use of devices waits for Google's metadata server.
ELSEWHERE = {"TPU_SKIP_MDS_QUERY": "1"}
STEPS = 150
TRAIN = ("train", "sample", "--root", "root", "--steps", f"{STEPS}", "--seed", "5", "--set", "summary_steps=5")


@pytest.fixture(scope="module")
def on_tpu_vm(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("tpu")
    programs = install(folder / "venv", "tpu.lock", build_wheel(folder))
    person = Installed(programs, folder / "here", folder / "home", **ELSEWHERE)
    person.podline("data", "draw", "drawn")
    person.podline("convert", "sample", "--source", "drawn", "--root", "root")
    return person


@pytest.fixture(scope="module")
def usual(on_tpu_vm: Installed) -> Installed:
    """Somebody in the same folder whose environment is that of the tests, with the usual build of TensorFlow."""
    programs = Path(sys.executable).parent
    return Installed(programs, on_tpu_vm.here, Path(on_tpu_vm.environment["HOME"]), **ELSEWHERE)


@pytest.mark.slow
def test_the_whole_chain_runs(on_tpu_vm: Installed) -> None:
    versions = "import tensorflow, keras; print(tensorflow.__version__, keras.backend.backend())"
    assert on_tpu_vm.run("python", "-c", versions).split()[0].startswith("2.20.")
    assert "accuracy" in on_tpu_vm.podline("run", "sample", "--source", "drawn", "--root", "root", "--epochs", "1")
    assert list((on_tpu_vm.here / "root" / "runs").glob("*/report.html"))


@pytest.mark.slow
@pytest.mark.parametrize("first", ["usual", "on_tpu_vm"])
def test_one_build_goes_on_from_the_checkpoint_of_the_other(first: str, on_tpu_vm: Installed, usual: Installed) -> None:
    begins, goes_on = (usual, on_tpu_vm) if first == "usual" else (on_tpu_vm, usual)
    # Runs of their own.
    train = (*TRAIN, "--set", f"augmentation.cutout={len(first)}")
    run = _interrupted(begins, train)
    [stopped] = [int(path.stem.split("-")[1]) for path in (run / "checkpoints").glob("step-*.json")]
    assert 0 < stopped < STEPS
    goes_on.podline(*train)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if line["kind"] == "train"]
    assert steps == sorted(set(steps))
    assert (steps[0] <= stopped, steps[-1]) == (True, STEPS)


def _interrupted(person: Installed, train: tuple[str, ...]) -> Path:
    """Train until the log has a few lines, then end it as a scheduler does; return the run's folder."""
    runs = person.here / "root" / "runs"
    before = set(runs.glob("*"))
    command = ["podline", *train]
    with subprocess.Popen(command, cwd=person.here, env=person.environment, stderr=subprocess.PIPE) as process:

        def logs() -> list[Path]:
            assert process.poll() is None, process.communicate()[1].decode()
            return [run for run in set(runs.glob("*")) - before if _has_lines(run)]

        [run] = wait_until(logs)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, said.decode()
    return run


def _has_lines(run: Path) -> bool:
    log = run / "metrics.jsonl"
    return log.is_file() and log.read_text().count("\n") > 2
