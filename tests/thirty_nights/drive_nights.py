"""Thirty nights in an hour: scheduled runs on a real server and worker, with faults by a seeded plan.

    PYTHONPATH=.:tests python tests/thirty_nights/drive_nights.py --nights 30 --seed 0

Each night is a run that the schedule of ``cifar-nightly`` makes, on the drawn sample made small, with the store in a
bucket. It has to end Completed, with the figures of a run that nothing disturbed, or Failed, with the cause in one
line; then the next night has to make good for it. Nobody lays a hand on anything but what a machine's service manager
does: a worker or a server that is gone is started again. A stage that is done is never done again for the same data.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from night_plan import RED, SHORT, Fault, Night, planned
from night_world import PATHS, World, draw
from prefect.client.schemas.objects import FlowRun
from prefect_servers import wait_until

from podline.processes import parent

_NIGHT_SECONDS = 600.0
STAGES = ("convert", "validate", "train", "evaluate", "report")
# What the line has to say where a night ends red.
_CAUSES = {
    Fault.DISK: "no space left on the device",
    Fault.STORAGE: "gs://podline-nights",
    Fault.RAISES: "raised by the plan of the nights",
}


@dataclass(frozen=True)
class Outcome:
    """How a night went.

    Attributes:
        night: the plan.
        state: of the run in the end.
        message: of that state.
        starts: how often the run began.
        minutes: from when it was scheduled to its end.
        begun: which stages began to work, in order.
        done: which were done.
        figures: of the run that it reported; empty if there is no report.
    """

    night: Night
    state: str
    message: str
    starts: int
    minutes: float
    begun: tuple[str, ...]
    done: tuple[str, ...]
    figures: dict[str, Any]

    @property
    def reused(self) -> tuple[str, ...]:
        """The stages that a run with a report did not do."""
        return tuple(stage for stage in STAGES if stage not in self.begun) if self.figures else ()

    @property
    def happened(self) -> str:
        """In words."""
        again = {stage: times for stage, times in Counter(self.begun).items() if times > 1}
        words = [self.state]
        words += [f"begun {self.starts} times"] if self.starts > 1 else []
        words += [f"{stage} tried {times} times" for stage, times in again.items()]
        return "; ".join(words) + (f": {self.cause}" if self.state != "Completed" else "")

    @property
    def cause(self) -> str:
        """The first line of the state's message."""
        return (self.message.splitlines() or [""])[0]


def drive(world: World, plan: Iterable[Night], total: int) -> list[Outcome]:
    """All nights, one after the other.

    Args:
        world: where.
        plan: the nights.
        total: how many there are.
    """
    outcomes, data = [], -1
    for night in plan:
        if night.data != data:
            draw(world.source, night.data)
            data = night.data
        outcomes.append(one_night(world, night, total))
        say(row(outcomes[-1]))
    return outcomes


def one_night(world: World, night: Night, total: int) -> Outcome:
    """Schedules a run, lays the fault when the stage is where it is to be, and waits for the run's end."""
    for name in ("fault", "reached", "go"):
        (world.meet / name).unlink(missing_ok=True)
    (world.meet / "night").write_text(str(night.number))
    if night.fault:
        wanted = {"stage": night.stage, "raises": night.fault is Fault.RAISES}
        (world.meet / "fault").write_text(json.dumps(wanted))
    began = time.monotonic()
    run = world.night(total + 2 - night.number)
    reached = world.meet / "reached"
    if night.fault:
        wait_until(lambda: reached.exists() or is_over(world.read(run)), _NIGHT_SECONDS)
    if night.fault and night.fault is not Fault.RAISES and reached.exists():
        lay(world, night.fault, int(reached.read_text()))
        (world.meet / "go").touch()
    wait_until(lambda: is_over(world.read(run)), _NIGHT_SECONDS)
    minutes = (time.monotonic() - began) / 60
    world.mend()
    ended = world.read(run)
    assert ended.state is not None
    notes = [line.split() for line in (world.meet / "stages").read_text().splitlines()]
    ours = [(what, stage) for number, what, stage in notes if int(number) == night.number]
    return Outcome(
        night,
        ended.state.name,
        ended.state.message or "",
        ended.run_count,
        minutes,
        tuple(stage for what, stage in ours if what == "begun"),
        tuple(stage for what, stage in ours if what == "done"),
        figures_of(world, ended) if ended.state.is_completed() else {},
    )


def is_over(run: FlowRun) -> bool:
    """Whether nothing more will happen; a run that crashed at its first start begins again by itself."""
    assert run.state is not None
    return run.state.is_final() and not (run.state.is_crashed() and run.run_count == 1)


def lay(world: World, fault: Fault, child: int) -> None:
    """Does what goes wrong tonight, while a stage's process waits for it."""
    flow = parent(child)
    assert flow
    if fault is Fault.MEMORY:
        os.kill(child, signal.SIGKILL)  # what the kernel does
    if fault is Fault.FLOW:
        os.kill(flow, signal.SIGKILL)
    if fault in (Fault.WORKER, Fault.MACHINE):
        world.kill_worker()
    if fault is Fault.MACHINE:
        for process in (flow, child):
            os.kill(process, signal.SIGKILL)
    if fault in (Fault.WORKER, Fault.MACHINE):
        world.start_worker()
    if fault is Fault.SERVER:
        world.server.kill()
        time.sleep(3)
        world.server.start()
        world.server.wait()
    if fault is Fault.DISK:
        world.fill_disk()
    if fault is Fault.STORAGE:
        world.proxy.faults, world.proxy.share = ("503",), 1.0


def figures_of(world: World, run: FlowRun) -> dict[str, Any]:
    """What a run reports: the checksums of weights and evaluation, and the metrics."""
    artifacts, store = world.artifacts(run.id), world.store
    name = artifacts["key-figures"].description.removeprefix("Key figures of ")
    results = {stage: store.read_json(f"runs/{name}/stages/{stage}.json")["result"] for stage in STAGES[2:]}
    assert artifacts["report"].data.strip()
    assert store.read_bytes(results["report"]["html"])
    return {
        "run": name,
        "weights": results["train"]["weights_sha256"],
        "metrics": results["evaluate"]["metrics"],
    }


def undisturbed(folder: Path, versions: Sequence[int], *, quick: bool) -> dict[int, dict[str, Any]]:
    """The figures of each version of the data when nothing goes wrong, by a process of its own."""
    environment = {**os.environ, "PYTHONPATH": PATHS, "NIGHT_QUICK": "1" if quick else ""}
    command = [sys.executable, "-m", "undisturbed_nights", str(folder), *map(str, versions)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return {int(data): figures for data, figures in json.loads(done.stdout.splitlines()[-1]).items()}


def problems(outcomes: Sequence[Outcome], expected: dict[int, dict[str, Any]]) -> list[str]:
    """What is not as it should be, a line each."""
    found, finished = [], Counter[tuple[int, str]]()
    for outcome in outcomes:
        night = outcome.night
        if outcome.figures:
            if outcome.figures != expected[night.data]:
                found.append(f"night {night.number}: {outcome.figures} vs {expected[night.data]} undisturbed")
        elif outcome.state != "Failed" or night.fault not in RED:
            found.append(f"night {night.number} ended {outcome.state}: {outcome.message}")
        elif _CAUSES[night.fault] not in outcome.cause:
            found.append(f"night {night.number} does not say {_CAUSES[night.fault]!r}: {outcome.message}")
        finished.update((night.data, stage) for stage in outcome.done)
    found += [
        f"{stage} of data {data} was done {times} times" for (data, stage), times in finished.items() if times > 1
    ]
    return found


HEAD = "| night | data | fault | what happened | minutes | re-used stages |\n|---|---|---|---|---|---|"


def row(outcome: Outcome) -> str:
    """A line of the table."""
    night = outcome.night
    fault = f"{night.fault}, in {night.stage}" if night.fault else "none"
    reused = "all" if outcome.reused == STAGES else ", ".join(outcome.reused) or "none"
    return (
        f"| {night.number} | {night.data} | {fault} | {outcome.happened} | {outcome.minutes:.1f} | "
        f"{reused if outcome.figures else '–'} |"
    )


def table(outcomes: Iterable[Outcome]) -> str:
    """All nights, in Markdown."""
    return "\n".join([HEAD, *map(row, outcomes)]) + "\n"


def nights(folder: Path, plan: Sequence[Night], *, quick: bool) -> tuple[str, list[str]]:
    """Drives a plan through a world of its own.

    Args:
        folder: for all that comes of it; ``nights.md`` in it is the table.
        plan: the nights.
        quick: the model's part is played by small stages.

    Returns:
        The table, and what is not as it should be.
    """
    with World(folder, quick=quick) as world:
        if any(night.fault is Fault.DISK for night in plan):
            world.mount()
        outcomes = drive(world, plan, len(plan))
    text = table(outcomes)
    (folder / "nights.md").write_text(text)
    expected = undisturbed(folder / "undisturbed", sorted({night.data for night in plan}), quick=quick)
    return text, problems(outcomes, expected)


def main() -> None:
    """Prints the table; the exit code says whether all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="the model's part is played by small stages")
    parser.add_argument("--short", action="store_true", help="the few nights of the tests in place of these, quick")
    parser.add_argument("--folder", type=Path, help="for logs and table; a new one in the system's own unless given")
    given = parser.parse_args()
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="nights-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    plan = SHORT if given.short else planned(given.nights, given.seed)
    text, wrong = nights(folder, plan, quick=given.quick or given.short)
    say(f"\n{text}\nlogs: {folder}")
    for line in wrong:
        say(f"WRONG: {line}")
    sys.exit(bool(wrong))


def say(line: str) -> None:
    """For who watches."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
