"""Machines that train the same run in one bucket: processes with a home, a cache, a clock and a network of their own.

``python -m two_machines SPEC`` is the command on a machine: it trains, and its run is an entry of the ledger. With
``SMALL`` in its environment the training is a stand-in: weights of the machine's own, checkpoints and logs, written by
the real mirror.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fault_proxy
import numpy as np
from metrics import evaluation_line, train_result
from small_dataset import small_recipe
from waiting import wait_until

from podline.base.errors import PodlineError, PreemptedError
from podline.base.progress import Event, Reporter, silent
from podline.documents import champions
from podline.documents.champions import Candidate
from podline.documents.log_writers import EventLog, MetricsLog
from podline.documents.metrics_log import METRICS
from podline.ledger.inventory.verification import verify
from podline.ledger.recording import recorded
from podline.recipes.durations import Duration
from podline.recipes.settings import Recipe
from podline.settings.machine import Settings, load
from podline.stages.completed import complete
from podline.stages.specs import SPEC, WEIGHTS, TrainResult, TrainSpec
from podline.stages.supervision import processes
from podline.stages.supervision.supervisor import run_stage
from podline.stages.table import STAGES, TRAIN
from podline.store.contract import Store
from podline.store.one_writer import LEASE
from podline.store.opening import open_store
from podline.training.checkpoints import CheckpointFolder, TimeSpent, restore_newest, write_arrays
from podline.training.mirror import Mirror

_MACHINE, _AHEAD, _SMALL = "_TEST_MACHINE", "_TEST_CLOCK_AHEAD", "_TEST_SMALL"
LEASE_SECONDS = 3.0
STEPS = 12

if ahead := os.environ.get(_AHEAD):
    real_time = time.time
    time.time = lambda: real_time() + float(ahead)


class SmallTrainSpec(TrainSpec):
    """The training of a stand-in; a child that reads it gets the machine's clock."""


if os.environ.get(_SMALL):
    STAGES["train"] = dataclasses.replace(TRAIN, spec=SmallTrainSpec, run_at="two_machines:train")


def train(spec: TrainSpec, reporter: Reporter) -> TrainResult:
    """Write a run like a training does, with weights that tell the machine."""
    store = open_store(spec.root)
    champions.require_never_champion(store, spec.recipe.name, spec.run)
    draw = np.random.default_rng(int.from_bytes(os.environ[_MACHINE].encode()))
    with Mirror(store, spec.folder, 60.0, reporter) as mirror:
        near = mirror.near
        near.publish_json(f"{spec.folder}/{SPEC}", spec.model_dump(mode="json"), replace=True)
        folder = CheckpointFolder(near, spec.folder, spec.digest())
        EventLog(near.local(f"{spec.folder}/events.jsonl")).write("started", 0, os.environ[_MACHINE])
        with MetricsLog(near.local(f"{spec.folder}/{METRICS}")) as log:
            found = restore_newest(folder, log, lambda arrays: None, lambda step, why: None)
            for step in range(found.step + 1 if found else 1, STEPS + 1):
                if mirror.lost:
                    raise PreemptedError("asked to end")
                time.sleep(0.25)
                log.write(evaluation_line(step, draw.random(), accuracy=0.5, time=time.time()))
                folder.save(step, {"x": draw.random(1000)}, log.mark(), TimeSpent())
                reporter.progress(step, STEPS, "steps")
        _, sha256 = write_arrays(near, f"{spec.folder}/{WEIGHTS}", {"x": draw.random(1000)})
        result = train_result(spec, sha256, steps=STEPS)
        names = [f"{spec.folder}/{name}" for name in (SPEC, METRICS, WEIGHTS)]
        beside = [each for each in near.listing(spec.folder) if each.name not in names]
        complete(near, spec.folder, spec, result, names, beside)
    return result


def _noted(event: Event) -> None:
    if event["event"] in ("log", "waiting"):
        sys.stderr.write(f"{time.monotonic():.1f} {event['message']}\n")


def main() -> None:
    spec = STAGES["train"].spec.model_validate_json(sys.argv[1])
    try:
        with recorded(open_store(spec.root), "t", "commands", silent()) as notes:
            notes.planned(spec.recipe, Settings(), "cpu")
            result = run_stage(spec, _noted, load())
    except PodlineError as error:
        sys.stdout.write(json.dumps(error.to_json()))
        sys.exit(error.exit_code)
    sys.stdout.write(json.dumps({"weights": result.weights_sha256}))


class Machine:
    """A machine that runs at most one command; ``ended`` has the exit code and the last line of each earlier one."""

    def __init__(self, name: str, home: Path, bucket: str, spec: TrainSpec, proxy: Any, *, ahead: float) -> None:
        self.name, self.ended = name, list[tuple[int, str]]()
        self._spec, self._proxy, self._log = spec, proxy, home / "log"
        self._process: subprocess.Popen[str] | None = None
        home.mkdir()
        self._mark = f"{name}-{home}"
        ours = {key: value for key, value in os.environ.items() if not key.startswith("PODLINE_")}
        self._environment = ours | {
            _MACHINE: self._mark,
            "HOME": str(home),
            "STORAGE_EMULATOR_HOST": proxy.url,
            "PODLINE_STORE_CACHE": str(home / "cache"),
            "PODLINE_STORE_DEADLINE": "4",
            "PODLINE_STORE_LEASE": str(LEASE_SECONDS),
            "PODLINE_TRAIN_LOCK": "",
            "CUDA_VISIBLE_DEVICES": "",
            _AHEAD: str(ahead),
            **({_SMALL: "1"} if isinstance(spec, SmallTrainSpec) else {}),
            # The arithmetic of another CPU.
            "TF_ENABLE_ONEDNN_OPTS": "0" if ahead else "1",
        }

    @property
    def busy(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            said = self._process.communicate()[0].splitlines()  # closes the pipe, too
            self.ended.append((self._process.returncode, said[-1] if said else ""))
            self._process = None
        return self._process is not None

    def start(self) -> None:
        if not self.busy:
            command = [sys.executable, "-m", "two_machines", self._spec.model_dump_json()]
            with self._log.open("a") as log:
                self._process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
                )

    def suspend(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._proxy.reachable.set()
        self._signal(signal.SIGCONT)

    def cut(self) -> None:
        self._proxy.reachable.clear()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(60)

    def lose_disk(self) -> None:
        self.kill()
        shutil.rmtree(self._environment["PODLINE_STORE_CACHE"], ignore_errors=True)

    def _signal(self, number: int) -> None:
        for process in processes.marked(_MACHINE, self._mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)


@contextlib.contextmanager
def machines(folder: Path, gcs: str, spec: TrainSpec) -> Iterator[tuple[Machine, Machine]]:
    """Two machines, the second one's clock a day ahead; nothing of them is left afterwards."""
    with fault_proxy.fault_proxy(gcs) as one, fault_proxy.fault_proxy(gcs) as other:
        both = tuple(
            Machine(name, folder / name, gcs, spec, proxy, ahead=ahead)
            for name, proxy, ahead in (("first", one, 0.0), ("second", other, 86_400.0))
        )
        try:
            yield both[0], both[1]
        finally:
            for each in both:
                each.resume()
                each.kill()
                assert not each.busy


ACTS: dict[str, Callable[[Machine], None]] = {
    "start": Machine.start,
    "suspend": Machine.suspend,
    "resume": Machine.resume,
    "cut": Machine.cut,
    "kill": Machine.kill,
    "lose disk": Machine.lose_disk,
}


def schedule(seed: int, seconds: float) -> list[tuple[float, int, str]]:
    """Times after the first lease, machines and acts: a long suspension or cut, and whatever else is drawn."""
    draw = random.Random(seed)
    acts = [(draw.choice([-1.0, -1.0, draw.uniform(0, seconds)]), 1, "start")]
    first = draw.uniform(0.1, 0.8) * seconds
    acts += [(first, 0, draw.choice(["suspend", "cut"])), (first + draw.uniform(1, 4) * LEASE_SECONDS, 0, "resume")]
    for _ in range(draw.randrange(4)):
        acts.append((draw.uniform(0, 3 * seconds), draw.randrange(2), draw.choice([*ACTS, "start", "resume"])))
    return sorted(acts)


class Played(NamedTuple):
    """What a schedule came to: what went wrong, and the exit codes of each machine's commands."""

    problems: list[str]
    codes: tuple[list[int], list[int]]


def played(folder: Path, gcs: str, store: Store, spec: TrainSpec, acts: list[tuple[float, int, str]]) -> Played:
    """Plays a schedule until both machines have the result.

    The first result becomes the champion, while the other machine may still be at work. The act ``wait`` lasts until
    the other machine has its result.
    """
    folder.mkdir(exist_ok=True)
    with machines(folder, gcs, spec) as both:
        both[0].start()
        for _, which, act in [each for each in acts if each[0] < 0]:
            ACTS[act](both[which])
        wait_until(lambda: store.exists(f"{spec.folder}/{LEASE}"))
        began = time.monotonic()
        for at, which, act in [each for each in acts if each[0] >= 0]:
            wait_until(lambda at=at: _crown(store, spec, both) or time.monotonic() >= began + at)
            if act == "wait":
                wait_until(lambda which=which: _has_result(both[1 - which]))
            else:
                ACTS[act](both[which])
        for each in both:
            each.resume()
        wait_until(lambda: _all_done(store, spec, both))
        return Played(_problems(store, spec, both), _codes(both))


def _all_done(store: Store, spec: TrainSpec, both: tuple[Machine, Machine]) -> bool:
    _crown(store, spec, both)
    for each in both:
        assert not {1, 2} & {code for code, _ in each.ended}, each.ended
        if not _has_result(each):
            each.start()
    return all(_has_result(each) for each in both)


def _problems(store: Store, spec: TrainSpec, both: tuple[Machine, Machine]) -> list[str]:
    results = {line for each in both for code, line in each.ended if code == 0}
    weights, entry = store.sha256(f"{spec.folder}/{WEIGHTS}"), champions.champion(store, spec.recipe.name)
    problems = [] if len(results) == 1 else [f"results {results}"]
    if entry is None or entry.weights_sha256 != weights or weights not in "".join(results):
        problems.append(f"weights {weights} vs champion {entry and entry.weights_sha256} and results {results}")
    codes = _codes(both)
    if not {*codes[0], *codes[1]} <= {0, 75, 143, -signal.SIGKILL}:
        problems.append(f"exit codes {codes}")
    # The data set of a test has no record of its conversion.
    return problems + [line for line in verify(store, silent()).problems if "/datasets/" not in line]


def _codes(both: tuple[Machine, Machine]) -> tuple[list[int], list[int]]:
    return [code for code, _ in both[0].ended], [code for code, _ in both[1].ended]


def _has_result(machine: Machine) -> bool:
    return not machine.busy and any(code == 0 for code, _ in machine.ended)


def _crown(store: Store, spec: TrainSpec, both: tuple[Machine, Machine]) -> None:
    for each in both:
        if _has_result(each) and champions.champion(store, spec.recipe.name) is None:
            weights = json.loads(next(line for code, line in each.ended if code == 0))["weights"]
            model = Candidate(spec.run, weights, spec.recipe.dataset, spec.fingerprint)
            champions.crown(store, spec.recipe.name, model, None, "promoted")


def real_recipe() -> Recipe:
    """A training of some seconds, with checkpoints all the time."""
    return small_recipe(duration=Duration(epochs=300), evaluate_every=Duration(epochs=1))


if __name__ == "__main__":
    # By its name, as the child of a stage imports it.
    import two_machines

    two_machines.main()
