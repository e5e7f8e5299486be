"""Decides whether a stage is slower than usual, and names the likely cause. Pure functions.

A stage is slow if both tests hold, against the latest :data:`MOST` runs of the recipe. First, the time per example
exceeds :data:`FACTOR` times the median. Second, the logarithm of the time exceeds the median of logarithms by more than
:data:`SPREADS` robust standard deviations (:data:`FEW_SPREADS` below :data:`ENOUGH` runs). Half as many standard
deviations suffice if a cause is found, such as other processes that use the CPU. The robust standard deviation is
1.4826 times the median absolute deviation, and at least :data:`LEAST_SPREAD`. At least :data:`LEAST` runs are needed.

If enough runs used the same devices, only these runs are compared, else all runs. With too few runs, the load of the
machine decides: see :func:`_crowded`. :func:`growth` detects a machine that becomes slower over months.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from podline.base.figures import duration
from podline.base.plurals import plural
from podline.documents.ledger_entry import Load
from podline.ledger.time_spent import CLASSES, LOSSES

MOST, LEAST, ENOUGH = 10, 3, 5
FACTOR, SPREADS, FEW_SPREADS, LEAST_SPREAD = 1.5, 6.0, 10.0, 0.05
GROWTH, ERRORS = 1.2, 4.0
"""Thresholds of :func:`growth`: factor, and number of standard errors of the difference of two medians."""
LEAST_LOSS = 0.05
_SATURATED = 0.9
# Smallest share of cores, or of quota periods, taken from a process that counts as a cause.
_LOST = 0.2

# Factor from the median absolute deviation to the standard deviation of normal values.
_TO_SIGMA = 1.4826
# Waiting for input is a cause if it explains at least this share of the extra time.
_EXPLAINED = 0.5


class MachinePace(NamedTuple):
    """The speed of a stage on a machine.

    Attributes:
        seconds: seconds per example or record.
        waiting: share of the time, 0…1, that training waited for input; 0 for other stages.
        devices: ``cpu``, ``gpu``, ``8 × tpu``; empty for stages without a model.
        strategy: the requested strategy of a training; empty for other stages.
        cores: number of cores that the process may use.
        machine: name of the host.
        traces: number of tracings of the training step; 0 if unknown.
        load: CPU load during the stage; None if unknown.
    """

    seconds: float
    waiting: float = 0.0
    devices: str = ""
    strategy: str = ""
    cores: int = 0
    machine: str = ""
    traces: int = 0
    load: Load | None = None


def slowness(now: MachinePace, before: Sequence[MachinePace]) -> str:
    """Describe the slowdown of a stage; empty if the stage is not slow. With too few runs, see :func:`_crowded`.

    Args:
        now: the pace of the stage.
        before: the paces of earlier runs, oldest first.
    """
    latest = [pace for pace in before if pace.seconds > 0][-MOST:]
    alike = [pace for pace in latest if pace.devices == now.devices]
    compared = alike if len(alike) >= LEAST else latest
    if len(compared) < LEAST or now.seconds <= 0:
        return _crowded(now)
    usual, spread = _logarithms(compared)
    allowed = (SPREADS if len(compared) >= ENOUGH else FEW_SPREADS) * spread
    slower = math.log(now.seconds) - usual
    if slower <= max(math.log(FACTOR), allowed / 2):
        return ""
    causes = _causes(now, compared)
    if not causes and slower <= allowed:
        return ""
    return _described(math.exp(slower), f"the last {plural(len(compared), 'run')}", causes)


def growth(recent: Sequence[MachinePace], past: Sequence[MachinePace]) -> str:
    """Describe the slowdown of a stage over months; empty without one, or if there are too few runs.

    Args:
        recent: paces of the latest runs, oldest first.
        past: paces of runs two months before.
    """
    if not recent:
        return ""
    now, then = ([pace for pace in paces if pace.devices == recent[-1].devices] for paces in (recent, past))
    if min(len(now), len(then)) < ENOUGH:
        return ""
    (usual, spread), (before, spread_before) = _logarithms(now), _logarithms(then)
    # The standard error of a median is 1.25 times that of a mean.
    error = 1.25 * math.hypot(spread / math.sqrt(len(now)), spread_before / math.sqrt(len(then)))
    if usual - before <= max(math.log(GROWTH), ERRORS * error):
        return ""
    causes = _causes(now[-1]._replace(seconds=math.exp(usual)), then)
    return _described(math.exp(usual - before), f"{plural(len(then), 'run')} two months before", causes)


def losses(now: Mapping[str, float], before: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a line for each class of lost time that took significantly longer than in at least LEAST earlier nights.

    The excess must be above the share :data:`LEAST_LOSS` of a median night, and above as many robust standard
    deviations as in :func:`slowness`.

    Args:
        now: class → seconds of a night.
        before: class → seconds of earlier nights, oldest first.
    """
    latest = before[-MOST:]
    if len(latest) < LEAST:
        return []
    night = median(sum(spent.values()) for spent in latest)
    spreads = SPREADS if len(latest) >= ENOUGH else FEW_SPREADS
    found = []
    for kind in LOSSES:
        took = [spent.get(kind, 0.0) for spent in latest]
        usual, more = median(took), now.get(kind, 0.0) - median(took)
        allowed = spreads * _TO_SIGMA * median(abs(each - usual) for each in took)
        if more > max(LEAST_LOSS * night, allowed):
            usually = f"usually {duration(usual)}" if usual else "none"
            nights = plural(len(latest), "night")
            found.append(f"{CLASSES[kind]}: {duration(now[kind])}, {usually} in the last {nights}")
    return found


def _logarithms(paces: Sequence[MachinePace]) -> tuple[float, float]:
    """Return median and robust standard deviation of the paces' logarithms."""
    usual = median(math.log(pace.seconds) for pace in paces)
    return usual, max(LEAST_SPREAD, _TO_SIGMA * median(abs(math.log(pace.seconds) - usual) for pace in paces))


def _crowded(now: MachinePace) -> str:
    """Describe the slowdown by the cores that other processes and the hypervisor used; empty if small or unknown."""
    load = now.load
    if (
        load is None
        or "cpu" not in now.devices.lower()
        or load.own + load.others + load.stolen < _SATURATED * load.cores
    ):
        return ""
    # Without the others, a training that uses all cores would also have had their cores.
    factor = load.cores / max(load.own, load.cores - load.others - load.stolen)
    if factor <= FACTOR:
        return ""
    return _described(factor, "on this machine alone, by estimate", _lost(load, []))


def _causes(now: MachinePace, before: Sequence[MachinePace]) -> list[str]:
    """Return the differences from earlier runs that may explain a slowdown, the most likely one first."""
    found = []
    if now.devices != _most(pace.devices for pace in before):
        found.append(f"{now.devices} instead of {_most(pace.devices for pace in before)}")
    waited = median(pace.waiting for pace in before)
    more_waiting = now.waiting * now.seconds - median(pace.waiting * pace.seconds for pace in before)
    if more_waiting >= _EXPLAINED * (now.seconds - median(pace.seconds for pace in before)):
        found.append(f"waits for input {now.waiting:.0%} of the time, {waited:.0%} before".replace("%", " %"))
    traced = [pace.traces for pace in before if pace.traces]
    if traced and now.traces > max(traced):
        found.append(f"traced {plural(now.traces, 'graph')} of the training step, {max(traced)} before")
    if now.load is not None:
        found += _lost(now.load, [pace.load for pace in before if pace.load is not None])
    if now.cores < min(pace.cores for pace in before):
        found.append(f"{plural(now.cores, 'core')} instead of {_most(pace.cores for pace in before)}")
    if not found and now.strategy not in {pace.strategy for pace in before}:
        found.append(f"strategy {now.strategy} instead of {_most(pace.strategy for pace in before)}")
    if now.machine not in {pace.machine for pace in before}:
        found.append(f"machine {now.machine} instead of {_most(pace.machine for pace in before)}")
    return found


def _described(factor: float, usual: str, causes: Sequence[str]) -> str:
    shown = f"{factor:.1f}" if factor < 10 else f"{factor:.0f}"
    return f"{shown} × slower than {usual}: {'; '.join(causes) or 'the cause is unknown'}"


def _lost(load: Load, before: Sequence[Load]) -> list[str]:
    """Describe the CPU time taken by other processes, hypervisor and quota, where larger than in earlier runs."""

    def usual(what: str) -> float:
        return median([getattr(each, what) for each in before] or [0.0])

    found = []
    for what, taken in (("others", "other processes use"), ("stolen", "the hypervisor takes")):
        cores = getattr(load, what)
        if cores - usual(what) >= _LOST * load.cores:
            earlier = f", {usual(what):.1f} before" if before else ""
            found.append(f"{taken} {cores:.1f} of {plural(load.cores, 'core')}{earlier}")
    if load.throttled - usual("throttled") >= _LOST:
        found.append(f"the CPU quota stops the process in {100 * load.throttled:.0f} % of the quota's periods")
    return found


def _most(values: Iterable[object]) -> str:
    return str(Counter(values).most_common(1)[0][0])
