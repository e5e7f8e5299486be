"""The outer loop in Python: runs stretches of steps on the device and calls hooks between them.

The device takes steps in *parts* of about a second, so that progress and SIGTERM are handled soon. Hooks see
*stretches*: all steps between two stops. The stops depend only on the step, so a resumed run has the same stops as an
uninterrupted one. The division of a stretch into parts affects only the clock.

This module does not need TensorFlow.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podline.base.errors import PreemptedError, SettingsError
from podline.base.stopwatch import measured

Series = Mapping[str, npt.NDArray[np.float32]]

PART_SECONDS = 1.0
_NEWS_SECONDS = 0.5
_NEVER = 2**62


@dataclass(frozen=True)
class StepsDone:
    """The steps that the device took in one call.

    Attributes:
        series: for each quantity of a step (``loss``, ``correct``, …) its value at each step, float32.
        seconds: duration of the call.
        waiting: the part of these seconds in which the device waited for input.
    """

    series: Series
    seconds: float
    waiting: float

    @property
    def steps(self) -> int:
        """The number of steps taken."""
        return len(next(iter(self.series.values())))

    def sums(self, names: Iterable[str]) -> dict[str, float]:
        """Return the sum over the steps of each quantity in ``names``."""
        return {name: float(np.sum(self.series[name], dtype=np.float64)) for name in names}


@dataclass(frozen=True)
class Stretch(StepsDone):
    """The steps between two stops of the loop.

    Attributes:
        step: number of steps that the run has taken by the end of the stretch.
        last: the loop ends here, because all steps are done or SIGTERM arrived, not because of a hook or decision.
    """

    step: int
    last: bool

    @property
    def first(self) -> int:
        """The index, from 0, of the first step of the stretch."""
        return self.step - self.steps


class Hook(ABC):
    """An action that the loop runs at its stops; a stretch is all steps between two stops.

    Attributes:
        reads: the quantities of a step that the hook reads in ``stretch.series``; see :func:`require_keys`.
    """

    reads: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return the hook's name for messages."""
        return f"hook {type(self).__name__}"

    def next_stop(self, step: int) -> int:  # noqa: ARG002 (for hooks that need stops of their own)
        """Return the first step after ``step`` at which the loop must stop for this hook; by default there is none."""
        return _NEVER

    @abstractmethod
    def after(self, stretch: Stretch) -> None:
        """Run at every stop of the loop, also at stops that other hooks requested."""

    def leaving(self, stretch: Stretch) -> None:  # noqa: B027 (most hooks do nothing)
        """Run after :meth:`after` of the same stretch, when SIGTERM ends the loop early.

        SIGTERM may arrive at any time: during the hooks, or between them and the next step.
        """

    def stop(self, stretch: Stretch) -> str:  # noqa: ARG002 (most hooks let the run go on)
        """Return why the run should end here, or (by default) an empty text; called after :meth:`after`."""
        return ""

    @abstractmethod
    def rehearse(self, stretch: Stretch) -> None:
        """Run before the first step of a start, without lasting effects; ``stretch`` has one step.

        A hook of an installed package is called twice: with the next step of the run, and with the last.
        """


def require_keys(hooks: Sequence[Hook], provided: Sequence[str]) -> None:
    """Check, before the first step, that the steps report every quantity that a hook reads.

    Raises:
        SettingsError: a hook reads a quantity that no step reports.
    """
    for hook in hooks:
        for key in hook.reads:
            if key not in provided:
                raise SettingsError(
                    f"the {hook.title} reads {key!r}, expected one of {', '.join(provided)}; "
                    "remove the hook, or add the quantity to the objective's measures"
                )


def next_multiple(step: int, every: int) -> int:
    """Return the first multiple of ``every`` after ``step``."""
    return (step // every + 1) * every


def run_loop(
    advance: Callable[[int], StepsDone],
    start: int,
    total: int,
    *,
    hooks: Sequence[Hook],
    news: Callable[[int, StepsDone], None],
    asked_to_stop: Callable[[], bool],
    over: Callable[[], bool] = lambda: False,
    agreed: Callable[[int], int] = lambda number: number,
) -> None:
    """Train from step ``start`` to step ``total``, or until a hook ends the run.

    Args:
        advance: takes the given number of steps on the device.
        start: number of steps already taken.
        total: number of steps of the run.
        hooks: are called in this order at every stop.
        news: is called with the number of steps taken and the latest part, at most a few times a second.
        asked_to_stop: returns whether SIGTERM arrived.
        over: returns whether a hook has ended the training.
        agreed: returns the chief's value of a number, so that all workers take equal parts.

    Raises:
        PreemptedError: SIGTERM arrived; the hooks have processed the stretch up to the current step.
    """
    step, reported, pace = start, 0.0, PART_SECONDS
    stretch: Stretch | None = None
    while step < total and not over():
        stop = min(total, *(hook.next_stop(step) for hook in hooks))
        parts: list[StepsDone] = []
        while step < stop and not asked_to_stop():
            count = agreed(max(1, min(stop - step, int(PART_SECONDS / pace))))
            parts.append(advance(count))
            step += count
            pace = max(parts[-1].seconds / count, 1e-9)
            if time.monotonic() - reported > _NEWS_SECONDS or step == total:
                with measured("saving"):
                    news(step, parts[-1])
                reported = time.monotonic()
        if parts:
            stretch = _joined(parts, step, last=step == total or asked_to_stop())
            with measured("saving"):
                for hook in hooks:
                    hook.after(stretch)
        if asked_to_stop():
            if stretch is not None:
                with measured("saving"):
                    for hook in hooks:
                        hook.leaving(stretch)
            raise PreemptedError(
                f"the run was asked to end (SIGTERM) at step {step} of {total}; the same command resumes there"
            )


def _joined(parts: Sequence[StepsDone], step: int, *, last: bool) -> Stretch:
    names = parts[0].series
    return Stretch(
        series={name: np.concatenate([part.series[name] for part in parts]) for name in names},
        seconds=sum(part.seconds for part in parts),
        waiting=sum(part.waiting for part in parts),
        step=step,
        last=last,
    )


@contextlib.contextmanager
def stop_on_sigterm() -> Generator[Callable[[], bool], None, None]:
    """Record SIGTERM as a request to stop, instead of ending the process, while the body runs.

    Yields:
        A function that returns whether SIGTERM has arrived; always False outside the main thread.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: asked.set())
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, before)
