"""Which nights there are: whether the data are new, what goes wrong and in which stage; all follows from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What goes wrong."""

    WORKER = "worker killed"
    FLOW = "flow process killed"
    MACHINE = "power cut"
    SERVER = "server restarted"
    MEMORY = "child out of memory"
    DISK = "disk full"
    STORAGE = "storage failing"
    RAISES = "evaluation raising"


# Where each can go wrong: a stage that takes a while, or that writes much.
STAGES: dict[Fault, tuple[str, ...]] = {
    Fault.WORKER: ("convert", "train", "evaluate"),
    Fault.FLOW: ("convert", "train", "evaluate", "report"),
    Fault.MACHINE: ("train",),
    Fault.SERVER: ("convert", "train", "evaluate"),
    Fault.MEMORY: ("train", "evaluate"),
    Fault.DISK: ("convert", "train"),
    Fault.STORAGE: ("train", "evaluate"),
    Fault.RAISES: ("evaluate",),
}
# What ends the run's process: the run begins again in the same night.
CRASHES = frozenset({Fault.WORKER, Fault.FLOW, Fault.MACHINE})
# What a run does not get over by itself: the night is red, and the next one makes good for it.
RED = frozenset({Fault.DISK, Fault.STORAGE, Fault.RAISES})


@dataclass(frozen=True)
class Night:
    """One night.

    Attributes:
        number: from 1.
        data: the version of the raw data that it finds, from 0; it is new if the night before had another.
        fault: what goes wrong; None if nothing does.
        stage: in which stage; empty if nothing goes wrong.
    """

    number: int
    data: int
    fault: Fault | None = None
    stage: str = ""


# The most telling faults: what is tried at each change of the code. The third night makes good for the one before it.
SHORT = (Night(1, 0, Fault.FLOW, "train"), Night(2, 1, Fault.RAISES, "evaluate"), Night(3, 1, Fault.WORKER, "evaluate"))


def planned(nights: int, seed: int) -> tuple[Night, ...]:
    """Every second night something goes wrong; all faults come before any comes again.

    A night with a fault has new data, or the stage in question would have nothing to do. One after a red night has the
    same, which it has to make good for. Of the others, about every second has new ones.

    Args:
        nights: how many there are.
        seed: the same one gives the same nights, and fewer of them are the first of more.
    """
    chance, deck = random.Random(seed), list[Fault]()
    plan = [Night(1, 0)]
    for number in range(2, nights + 1):
        data = plan[-1].data
        if number % 2:
            new = chance.randint(0, 1) if plan[-1].fault not in RED else 0
            plan.append(Night(number, data + new))
            continue
        deck = deck or chance.sample(list(Fault), len(Fault))
        fault = deck.pop()
        plan.append(Night(number, data + 1, fault, chance.choice(STAGES[fault])))
    return tuple(plan)
