"""Runs a stage with a machine's settings; a stage on a TPU first passes the gate, and is watched.

The command line and the flows' tasks both run stages through this module.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from podline.base.errors import PodlineError, SettingsError, TpuSetupError
from podline.base.progress import Event, Listener, Reporter
from podline.settings.machine import Settings
from podline.settings.tpu_settings import TpuSettings
from podline.stages.base import Result, Spec
from podline.stages.supervision.supervisor import Ending, run_stage
from podline.stages.table import stage_of
from podline.store.opening import open_store
from podline.tpu.clock import SYSTEM_CLOCK, Clock
from podline.tpu.gate import admitted
from podline.tpu.tpu_log import Event as Happening
from podline.tpu.tpu_log import TpuLog
from podline.tpu.watch import Course, Watch, WatchDecision, watching

# Seconds between two checks of the watch; the settings define how often a check calls the API.
_LOOK_SECONDS = 0.2
_NODE_NAME = re.compile(r"[a-z][a-z0-9-]*")


R = TypeVar("R", bound=Result)


class Runner(Protocol):
    """The type of functions that run a stage and report events from ``start`` to ``result`` or ``error``."""

    def __call__(self, spec: Spec[R], listener: Listener, machine: Settings, ending: Ending) -> R:
        """Return the stage's result; ``ending`` may end it early."""
        ...


Placed = Callable[[TpuSettings, TpuLog], AbstractContextManager[Runner]]
"""A context that reserves a TPU, and yields a function that runs a stage here or on the node (``tpu.placement``)."""


@contextlib.contextmanager
def _placed_here(tpu: TpuSettings, _tpu_log: TpuLog) -> Iterator[Runner]:
    if tpu.placement == "node":
        raise TpuSetupError(
            "tpu.placement = 'node' needs a flow run on a Prefect server to which the node's worker is connected; run "
            "a deployment, or remove the setting"
        )
    yield run_stage


def perform(
    spec: Spec[R],
    listener: Listener,
    machine: Settings,
    *,
    attempt: int = 1,
    clock: Clock = SYSTEM_CLOCK,
    placed: Placed = _placed_here,
) -> R:
    """Return a stage's result; see :func:`podline.stages.supervision.supervisor.run_stage`.

    Args:
        spec: the stage's spec.
        listener: gets the stage's events.
        machine: settings with the limits, and the TPU, if there is one.
        attempt: number of the attempt, from 1; all attempts share the repair budgets of the first.
        clock: the clock for the TPU's gate and watch.
        placed: reserves a TPU and chooses the place of the stage; by default this machine.

    Raises:
        TpuSetupError: ``tpu.placement`` is ``node``, but there is no Prefect server.
        PodlineError: an error of the stage, of the gate or of the watch.
    """
    tpu, stage = tpu_of(spec, machine), stage_of(spec)
    if tpu is None or stage.find(spec, Reporter(stage.name, listener)) is not None:
        return run_stage(spec, listener, machine)
    return _on_tpu(tpu, spec, listener, machine, attempt, clock, placed)


def tpu_of(spec: Spec[Any], machine: Settings) -> TpuSettings | None:
    """Return the settings of the TPU, if they name one, that any stage with a model must have for itself; else None.

    Raises:
        TpuSetupError: the strategy asks for a TPU, but the settings name no node.
        SettingsError: the strategy names another node than the settings.
    """
    strategy = spec.model_strategy
    if strategy is None:
        return None
    kind, _, name = strategy.partition(":")
    if kind == "tpu" and machine.tpu is None:
        raise TpuSetupError(
            f"strategy={strategy} needs a TPU node, but the settings name none; set tpu.node, tpu.api.project and "
            "tpu.api.zone (docs/how-to/tpu.md)"
        )
    if kind == "tpu" and machine.tpu and _NODE_NAME.fullmatch(name) and name not in ("local", machine.tpu.node):
        raise SettingsError(
            f"strategy={strategy} vs tpu.node={machine.tpu.node!r}: name the same node, or set strategy=tpu"
        )
    return machine.tpu


def _on_tpu(
    tpu: TpuSettings,
    spec: Spec[R],
    listener: Listener,
    machine: Settings,
    attempt: int,
    clock: Clock,
    placed: Placed,
) -> R:
    # Importing Google's client takes half a second, so it is imported only for a TPU.
    from podline.tpu.client import CloudTpu  # noqa: PLC0415

    ending = Ending()
    clock = _Alarm(clock, ending)
    reporter, timer = Reporter(stage_of(spec).name, listener), _SilenceTimer(listener, clock)
    tpu_log = TpuLog(reporter.log, open_store(spec.root), spec.folder)

    def act(verdict: WatchDecision) -> None:
        reporter.warn(f"{verdict.why}: {verdict.course}")
        what = f"{reporter.stage} was ended ({verdict.course}): {verdict.why}; the next attempt resumes"
        ending.ask(verdict.error(what), at_once=verdict.course is Course.END_NOW)

    with contextlib.ExitStack() as stack:
        try:
            runner = stack.enter_context(placed(tpu, tpu_log))
            if attempt == 1:
                tpu_log.tell(clock.now(), Happening.BEGIN, f"{reporter.stage} on node {tpu.node}")
            api = stack.enter_context(CloudTpu(tpu.api, clock))
            stack.enter_context(admitted(tpu, api, clock, tpu_log))
        except PodlineError as error:
            reporter.failed(error.to_json())
            raise
        timer.reset()
        # For a stage on the node, the supervisor there checks the progress.
        silent_for = timer.silent_for if runner is run_stage else lambda: 0.0
        with watching(Watch(tpu, api, clock, reporter.log), silent_for, act, _LOOK_SECONDS):
            return runner(spec, timer, machine, ending)


class _Alarm:
    """A clock whose ``sleep`` raises the error of an :class:`Ending`, so that a wait at the TPU's gate ends too."""

    def __init__(self, clock: Clock, ending: Ending) -> None:
        self.now = clock.now
        self._clock, self._ending = clock, ending

    def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``; raise the error of a requested end."""
        self._clock.sleep(seconds)
        if self._ending.error is not None:
            raise self._ending.error


class _SilenceTimer:
    """A listener that measures the time without progress, by the clock of the TPU's watch."""

    def __init__(self, listener: Listener, clock: Clock) -> None:
        self._listener, self._clock = listener, clock
        self._since = clock.now()

    def __call__(self, event: Event) -> None:
        if event["event"] == "progress":
            self.reset()
        self._listener(event)

    def reset(self) -> None:
        """Restart the timer after progress."""
        self._since = self._clock.now()

    def silent_for(self) -> float:
        """Return the seconds since the last progress."""
        return self._clock.now() - self._since
