"""The stages of a night: each notes when it begins and is done, and lets a fault come always at the same place.

With ``NIGHT_QUICK`` in the environment the model's part (train, evaluate, report) is played by small stages.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from night_plan import Fault
from small_flow_stages import STEPPING_STAGES

from podline.progress import Event, Reporter
from podline.stages.specs import Spec
from podline.stages.table import CONVERT, EVALUATE, REPORT, TRAIN, VALIDATE, Stage, stage_of

_HOLD_SECONDS = 300.0
# As they are, before any test or flow puts others in their place.
_REAL = {stage.name: stage for stage in (CONVERT, VALIDATE, TRAIN, EVALUATE, REPORT)}


def real_stages() -> dict[str, Stage[Any, Any]]:
    """What does the work."""
    small = {name: STEPPING_STAGES[name] for name in ("train", "evaluate", "report")}
    return {**_REAL, **(small if os.environ.get("NIGHT_QUICK") else {})}


def watched_stages() -> dict[str, Stage[Any, Any]]:
    """The same, watched, for a flow."""
    return {name: replace(stage, run_at="night_stages:run") for name, stage in real_stages().items()}


def run(spec: Spec, reporter: Reporter) -> Any:
    """Any stage: the note, the fault if there is one for it, the work, the note."""
    name = stage_of(spec).name
    _note("begun", name)
    watched = Reporter(name, _Faulty(name, reporter))
    if name in ("evaluate", "report"):
        watched.progress(0, 1, "parts")  # the small ones have no sign of their own
    result = real_stages()[name].run(spec, watched)
    _note("done", name)
    return result


class _Faulty:
    """A listener that stops a stage, or raises, if that is tonight's plan: a training half way, others at once."""

    def __init__(self, stage: str, reporter: Reporter) -> None:
        self._stage, self._reporter = stage, reporter

    def __call__(self, event: Event) -> None:
        self._reporter._listener(event)
        of_training = self._stage == "train"
        if event["event"] == "progress" and event["done"] >= event["total"] // 2 * of_training:
            self._act()

    def _act(self) -> None:
        planned = folder() / "fault"
        if not planned.exists() or not planned.read_text().endswith(f" in {self._stage}"):
            return
        fault = planned.read_text().removesuffix(f" in {self._stage}")
        # Once: what is started again meets no fault.
        planned.rename(folder() / "reached.new")
        (folder() / "reached.new").write_text(str(os.getpid()))
        (folder() / "reached.new").rename(folder() / "reached")
        if fault == Fault.RAISES:
            raise RuntimeError("raised by the plan of the nights")
        deadline = time.monotonic() + _HOLD_SECONDS
        while not (folder() / "go").exists():
            assert time.monotonic() < deadline, "nobody laid the fault"
            time.sleep(0.2)
        if fault == Fault.MEMORY:
            _take_memory()


def _take_memory() -> None:
    """Takes more than there is."""
    taken = [bytearray(b"x") * 1_000_000 for _ in range(1000)]
    raise AssertionError(f"nobody minded {len(taken)} MB")


def folder() -> Path:
    """Where plan, stages and driver meet."""
    return Path(os.environ["NIGHT_FOLDER"])


def _note(what: str, stage: str) -> None:
    with (folder() / "stages").open("a") as file:
        file.write(f"{(folder() / 'night').read_text()} {what} {stage}\n")
