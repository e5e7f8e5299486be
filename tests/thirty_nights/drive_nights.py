"""Thirty nights in an hour: scheduled runs on a real server and worker, with faults by a seeded plan.

    PYTHONPATH=.:tests/support python tests/thirty_nights/drive_nights.py --nights 30 --seed 0

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
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from fault_proxy import RESET
from night_outcomes import STAGES, Outcome, problems, row, table
from night_plan import SHORT, Fault, Night, planned
from night_world import PATHS, World, draw
from prefect.client.schemas.objects import FlowRun
from prefect_servers import wait_until

from podline.supervision.processes import parent

_NIGHT_SECONDS = 900.0
_LOOK_SECONDS = 1.0
# In which a stage goes on without a server, and may end.
_AWAY_SECONDS = 10.0


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
    """Has the schedule make a run, lays the fault when the stage is where it is to be, and waits for the run's end."""
    for name in ("fault", "reached", "go"):
        (world.meet / name).unlink(missing_ok=True)
    (world.meet / "night").write_text(str(night.number))
    if night.fault:
        (world.meet / "fault").write_text(f"{night.fault} in {night.stage}")
    began = time.monotonic()
    run = world.night(total + 2 - night.number)
    reached, laid = world.meet / "reached", datetime.now(UTC)
    if night.fault:
        wait_until(lambda: reached.exists() or is_over(world.read(run)), _NIGHT_SECONDS, _LOOK_SECONDS)
        laid = datetime.now(UTC)
    if reached.exists():
        lay(world, night.fault, int(reached.read_text()))
    wait_until(lambda: is_over(world.read(run)), _NIGHT_SECONDS, _LOOK_SECONDS)
    minutes = (time.monotonic() - began) / 60
    world.mend()
    ended = world.read(run)
    assert ended.state is not None
    notes = [line.split() for line in (world.meet / "stages").read_text().splitlines()]
    ours = [(what, stage) for number, what, stage in notes if int(number) == night.number]
    crashed, again = pauses(world, run, laid)
    return Outcome(
        night,
        struck=reached.exists(),
        state=ended.state.name,
        message=ended.state.message or "",
        starts=ended.run_count,
        put_back=sum(state.name == "AwaitingRetry" for state in world.states(run)),
        crashed=crashed,
        again=again,
        minutes=minutes,
        begun=tuple(stage for what, stage in ours if what == "begun"),
        done=tuple(stage for what, stage in ours if what == "done"),
        figures=figures_of(world, ended) if ended.state.is_completed() else {},
    )


def is_over(run: FlowRun) -> bool:
    """Whether nothing more will happen; a run that crashed at its first start begins again by itself."""
    assert run.state is not None
    return run.state.is_final() and not (run.state.is_crashed() and run.run_count == 1)


def pauses(world: World, run: UUID, laid: datetime) -> tuple[float | None, float | None]:
    """Seconds from a fault to when the run was marked Crashed, and to when it began again; None if it was not."""
    crashed = next((state for state in world.states(run) if state.is_crashed()), None)
    if crashed is None:
        return None, None
    again = (state for state in world.states(run) if state.is_running() and state.timestamp > crashed.timestamp)
    moments = (crashed, next(again, None))
    first, second = (state and (state.timestamp - laid).total_seconds() for state in moments)
    return first, second


def lay(world: World, fault: Fault | None, child: int) -> None:
    """Does what goes wrong tonight, while a stage's process waits for it."""
    flow = parent(child)
    match fault:
        case Fault.FLOW:
            _kill(flow)
        case Fault.WORKER:
            world.kill_worker()
            world.start_worker()
        case Fault.MACHINE:
            world.server.kill()
            world.kill_worker()
            _kill(flow, child)
            world.server.start()
            world.server.wait()
            world.start_worker()
        case Fault.SERVER:
            world.server.kill()
            world.go_on()
            time.sleep(_AWAY_SECONDS)
            world.server.start()
            world.server.wait()
        case Fault.MEMORY:
            world.limit_memory(child)
        case Fault.DISK:
            world.fill_disk()
        case Fault.STORAGE:
            world.proxy.faults, world.proxy.share = ("503", RESET), 1.0
    world.go_on()


def _kill(*processes: int | None) -> None:
    for process in processes:
        assert process
        os.kill(process, signal.SIGKILL)


def figures_of(world: World, run: FlowRun) -> dict[str, Any]:
    """What a run reports: the checksums of weights and evaluation, and the metrics."""
    artifacts, store = world.artifacts(run.id), world.store
    name = artifacts["sample-key-figures"].description.removeprefix("Key figures of ")
    results = {stage: store.read_json(f"runs/{name}/stages/{stage}.json")["result"] for stage in STAGES[2:]}
    assert artifacts["sample-report"].data.strip()
    assert store.read_bytes(results["report"]["html"])
    return {"run": name, "weights": results["train"]["weights_sha256"], "metrics": results["evaluate"]["metrics"]}


def undisturbed(folder: Path, versions: Sequence[int], *, quick: bool) -> dict[int, dict[str, Any]]:
    """The figures of each version of the data when nothing goes wrong, by a process of its own."""
    environment = {**os.environ, "PYTHONPATH": PATHS, "NIGHT_QUICK": "1" if quick else ""}
    command = [sys.executable, "-m", "undisturbed_nights", str(folder), *map(str, versions)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return {int(data): figures for data, figures in json.loads(done.stdout.splitlines()[-1]).items()}


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
        world.prepare({night.fault for night in plan if night.fault})
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
