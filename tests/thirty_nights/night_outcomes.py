"""How nights went: what is told of each, and whether it is as it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from night_plan import CRASHES, RED, Fault, Night

STAGES = ("convert", "validate", "train", "evaluate", "report")
# What the line has to say where a night ends red.
_CAUSES = {
    Fault.DISK: "no space left on the device",
    Fault.STORAGE: "gs://podline-nights",
    Fault.RAISES: "raised by the plan of the nights",
}
_HEAD = "| night | data | fault | what happened | minutes | re-used stages |\n|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Outcome:
    """How a night went.

    Attributes:
        night: the plan.
        struck: whether the fault came to be.
        state: of the run in the end.
        message: of that state.
        starts: how often the run began.
        put_back: how often it was put back into the queue.
        crashed: seconds from the fault to when the run was marked Crashed; None if it was not.
        again: seconds from the fault to when it began again.
        minutes: from when it was made to its end.
        begun: which stages began to work, in order.
        done: which were done.
        figures: of the run that it reported; empty if there is no report.
    """

    night: Night
    struck: bool
    state: str
    message: str
    starts: int
    put_back: int
    crashed: float | None
    again: float | None
    minutes: float
    begun: tuple[str, ...]
    done: tuple[str, ...]
    figures: dict[str, Any]

    @property
    def reused(self) -> tuple[str, ...]:
        """The stages that a run with a report did not do."""
        return tuple(stage for stage in STAGES if stage not in self.begun) if self.figures else ()

    @property
    def cause(self) -> str:
        """The first line of the state's message."""
        return (self.message.splitlines() or [""])[0]

    @property
    def happened(self) -> str:
        """In words."""
        words = []
        if self.crashed is not None:
            words.append(f"Crashed after {self.crashed:.0f} s")
        if self.again is not None:
            words.append(f"begun again after {self.again:.0f} s")
        words += [f"{stage} begun {times} times" for stage, times in Counter(self.begun).items() if times > 1]
        words.append(self.state if self.state == "Completed" else f"{self.state}: {self.cause}")
        return "; ".join(words)

    @property
    def left_its_trace(self) -> bool:
        """Whether the fault did to the night what it is there for; a server that was away need not have done any."""
        fault = self.night.fault
        if fault in RED:
            return not self.figures
        if fault in CRASHES:
            return self.starts == 2
        return fault is not Fault.MEMORY or self.begun.count(self.night.stage) == 2


def problems(outcomes: Sequence[Outcome], expected: dict[int, dict[str, Any]]) -> list[str]:
    """What is not as it should be, a line each.

    Args:
        outcomes: of all nights.
        expected: the figures of each version of the data.
    """
    found, finished = [], Counter[tuple[int, str]]()
    for outcome in outcomes:
        found += [f"night {outcome.night.number}: {problem}" for problem in _of_one(outcome, expected)]
        finished.update((outcome.night.data, stage) for stage in outcome.done)
    found += [
        f"{stage} of data {data} was done {times} times" for (data, stage), times in finished.items() if times > 1
    ]
    return found


def _of_one(outcome: Outcome, expected: dict[int, dict[str, Any]]) -> list[str]:
    night, found = outcome.night, []
    if night.fault and not (outcome.struck and outcome.left_its_trace):
        found.append(f"{night.fault} in {night.stage} did nothing")
    if outcome.put_back != outcome.starts - 1:
        found.append(f"began {outcome.starts} times, and was put back into the queue {outcome.put_back} times")
    if outcome.figures:
        if outcome.figures != expected[night.data]:
            found.append(f"{outcome.figures} vs {expected[night.data]} undisturbed")
    elif outcome.state != "Failed" or night.fault not in RED:
        found.append(f"ended {outcome.state}: {outcome.message}")
    elif _CAUSES[night.fault] not in outcome.cause:
        found.append(f"does not say {_CAUSES[night.fault]!r}: {outcome.message}")
    return found


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
    return "\n".join([_HEAD, *map(row, outcomes)]) + "\n"
