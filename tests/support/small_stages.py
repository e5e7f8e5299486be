"""Small stages for tests: what a real one does wrong or right, in a process, without its weight.

Importing this module registers them, in a test's process and in the children that it starts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from podline.base.errors import PodlineError, SourceError
from podline.base.progress import Reporter
from podline.stages.base import Result, Spec
from podline.stages.completed import complete
from podline.stages.specs import TrainSpec
from podline.stages.table import STAGES, Stage
from podline.store.opening import open_store


class ActSpec(Spec):
    act: str
    number: int = 0
    place: str = "acts"

    @property
    def folder(self) -> str:
        return self.place


class ActResult(Result):
    number: int
    process: int


def run(spec: ActSpec, reporter: Reporter) -> ActResult:
    reporter.progress(0, 2, "acts")
    ACTS[spec.act](spec, reporter)
    reporter.progress(2, 2, "acts", {"number": spec.number})
    return _finish(spec)


def _finish(spec: ActSpec) -> ActResult:
    store = open_store(spec.root)
    store.publish_bytes(f"{spec.folder}/artifact", str(spec.number).encode(), replace=True)
    result = ActResult(number=spec.number, process=os.getpid(), seconds=0.5)
    complete(store, spec.folder, spec, result, [f"{spec.folder}/artifact"])
    return result


def _work(spec: ActSpec, reporter: Reporter) -> None:
    reporter.log("at work")


def _slow_work(spec: ActSpec, reporter: Reporter) -> None:
    note(spec, "working", os.getpid())
    time.sleep(2)


def _work_until_told(spec: ActSpec, reporter: Reporter) -> None:
    """Ends when the test has written ``enough`` beside its note, or after four minutes."""
    note(spec, "working", os.getpid())
    deadline = time.monotonic() + 240
    while not (Path(spec.root) / "enough").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def train(spec: TrainSpec, reporter: Reporter) -> ActResult:
    """Stand in for a training that ends when the test has written ``enough``."""
    act = ActSpec(root=spec.root, act="train")
    _work_until_told(act, reporter)
    return _finish(act)


def find_nothing(spec: TrainSpec, reporter: Reporter) -> None:
    """Stand in for the search for an earlier training: there is none."""


def _noise(spec: ActSpec, reporter: Reporter) -> None:
    for done in range(20_000):
        sys.stdout.write("x" * 100 + "\n")
        os.write(2, b"y" * 100 + b"\n")
        reporter.progress(done, 20_000, "lines")
    reporter.warn("that was loud")


def _bad_source(spec: ActSpec, reporter: Reporter) -> None:
    raise SourceError(f"{spec.root}: a source that cannot be")


def _own_error(spec: ActSpec, reporter: Reporter) -> None:
    raise PodlineError("the words of a package")


def _bug(spec: ActSpec, reporter: Reporter) -> None:
    raise ZeroDivisionError("nobody thought of this")


# What TensorFlow writes at its start on a machine without a GPU.
NOISE = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795376077.221684   15011 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU is not used.
2026-11-22 18:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:227] This binary is optimized for AVX2.
To enable the following instructions: AVX512F FMA, rebuild TensorFlow with the appropriate compiler flags.
E0000 00:00:1795376107.749694   15011 cuda_platform.cc:52] failed call to cuInit: UNKNOWN ERROR (303)
"""


def _exit(spec: ActSpec, reporter: Reporter) -> None:
    sys.stdout.write(f"F0000 00:00:1795376107.7 15011 tensor.cc:9] Check failed: a word\n{NOISE}last words\n")
    sys.stdout.flush()
    os._exit(3)


def _killed(spec: ActSpec, reporter: Reporter) -> None:
    assert len(bytearray(spec.number)) == spec.number
    os.kill(os.getpid(), signal.SIGKILL)


def _signalled(spec: ActSpec, reporter: Reporter) -> None:
    os.kill(os.getpid(), spec.number)


def _killed_with_a_temporary_file(spec: ActSpec, reporter: Reporter) -> None:
    note(spec, "temporary", int(Path(tempfile.mkdtemp(prefix=f"of-{os.getpid()}-")).is_dir()))
    os.kill(os.getpid(), signal.SIGKILL)


def _bus(spec: ActSpec, reporter: Reporter) -> None:
    """Reads of a mapped file what was cut off."""
    file = Path(spec.root) / "mapped"
    file.write_bytes(bytes(8192))
    mapped = np.memmap(file, np.uint8, "r")
    os.truncate(file, 0)
    int(mapped[0])


def _sleep(spec: ActSpec, reporter: Reporter) -> None:
    note(spec, "sleeping", os.getpid())
    reporter.log("asleep")
    time.sleep(600)


def _finish_and_stay(spec: ActSpec, reporter: Reporter) -> None:
    _finish(spec)
    _sleep(spec, reporter)


def _stall(spec: ActSpec, reporter: Reporter) -> None:
    """Has a pace, and then blocks while a thread of its own blocks as well."""
    reporter.pace(None)
    threading.Thread(target=_blocked_reader, daemon=True).start()
    reporter.pace(0.01)
    _sleep(spec, reporter)


def _blocked_reader() -> None:
    time.sleep(600)


def _save_when_asked(spec: ActSpec, reporter: Reporter) -> None:
    def save(_signal: int, _frame: Any) -> None:
        time.sleep(0.3)
        note(spec, "saved", 1)
        reporter.log("saved at SIGTERM")
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    _sleep(spec, reporter)


def _family(spec: ActSpec, reporter: Reporter) -> None:
    """Leaves a process in its own group and one in a session of its own, both deaf to SIGTERM; then sleeps or ends."""
    command = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"]
    near = subprocess.Popen(command)
    far = subprocess.Popen(command, start_new_session=True)
    time.sleep(0.3)
    note(spec, "near", near.pid)
    note(spec, "far", far.pid)
    if spec.number:
        _sleep(spec, reporter)


def _no_space(spec: ActSpec, reporter: Reporter) -> None:
    with Path("/dev/full").open("w") as full:
        full.write("x" * 100_000)


def note(spec: ActSpec, name: str, value: int) -> None:
    path = Path(spec.root, f"{name}.tmp")
    path.write_text(str(value))
    path.replace(Path(spec.root, name))


ACTS = {
    "finish and stay": _finish_and_stay,
    "work": _work,
    "slow work": _slow_work,
    "work until told": _work_until_told,
    "noise": _noise,
    "bad source": _bad_source,
    "own error": _own_error,
    "bug": _bug,
    "exit": _exit,
    "killed": _killed,
    "signalled": _signalled,
    "killed with a temporary file": _killed_with_a_temporary_file,
    "bus": _bus,
    "sleep": _sleep,
    "stall": _stall,
    "save when asked": _save_when_asked,
    "family": _family,
    "no space": _no_space,
}
ACT = Stage("act", ActSpec, ActResult, "small_stages:run")
STAGES[ACT.name] = ACT
