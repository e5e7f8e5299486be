"""The outer loop in Python: runs stretches of steps on the device, and calls hooks.

The device takes steps in *parts* of about a second, so that progress and a request to end are never far away. Hooks see
*stretches*: all the steps between two stops. Where the stops are depends on the step alone, so a run that was broken
off and goes on has the stops that it would have had; how a stretch falls into parts changes nothing but the clock.

Nothing here needs TensorFlow.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from podline.errors import PreemptedError, SettingsError
from podline.stopwatch import measured

Series = Mapping[str, npt.NDArray[np.float32]]

PART_SECONDS = 1.0
_NEWS_SECONDS = 0.5
_NEVER = 2**62


@dataclass(frozen=True)
class StepsDone:
    """The steps that the device took in one call.

    Attributes:
        series: for each quantity of a step (``loss``, ``correct``, …) its value at each step, float32.
        seconds: how long it took.
        waiting: for how many of these seconds the device waited for input.
    """

    series: Series
    seconds: float
    waiting: float

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(next(iter(self.series.values())))

    def sums(self, names: Iterable[str]) -> dict[str, float]:
        """Return the sums of some quantities over the steps."""
        return {name: float(np.sum(self.series[name], dtype=np.float64)) for name in names}


@dataclass(frozen=True)
class Stretch(StepsDone):
    """The steps between two stops of the loop.

    Attributes:
        step: how many steps the run has done at its end.
        last: the loop ends here, because all steps are done or because it was asked to.
    """

    step: int
    last: bool

    @property
    def first(self) -> int:
        """The index, from 0, of its first step."""
        return self.step - self.steps


class Hook(ABC):
    """An action that the loop runs when it stops; a stretch is all steps between two stops.

    Attributes:
        reads: the quantities of a step that it reads in ``stretch.series``; see :func:`require_keys`.
    """

    reads: ClassVar[tuple[str, ...]] = ()

    def next_stop(self, step: int) -> int:  # noqa: ARG002 (for those that want a stop of their own)
        """Return the first step after ``step`` at which the loop must stop for this hook; never, by default."""
        return _NEVER

    @abstractmethod
    def after(self, stretch: Stretch) -> None:
        """Run at every stop, whichever hook requested it."""

    def leaving(self, stretch: Stretch) -> None:  # noqa: B027 (most have nothing to do then)
        """Run after :meth:`after` of the same stretch, when the loop ends early on request.

        The question may come at any time: while the hooks are at work, or between them and the next step.
        """

    @abstractmethod
    def rehearse(self, stretch: Stretch) -> None:
        """Run once before the first step, without lasting effects; ``stretch`` is of one step."""


def require_keys(hooks: Sequence[Hook], provided: Sequence[str]) -> None:
    """Check, before the first step, that every quantity that hooks read is reported by the steps.

    Raises:
        SettingsError: a hook reads a quantity that no step reports.
    """
    for hook in hooks:
        for key in hook.reads:
            if key not in provided:
                raise SettingsError(
                    f"the hook {type(hook).__name__} reads {key!r}, expected one of {', '.join(provided)}; "
                    "leave the hook out, or have the objective measure it"
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
    agreed: Callable[[int], int] = lambda mine: mine,
) -> None:
    """Trains from step ``start`` to step ``total``, or to where a hook ends it.

    Args:
        advance: takes this many steps on the device.
        start: how many steps are done.
        total: how many there are.
        hooks: called in this order at every stop.
        news: told of the number of steps done and of the latest part, a few times a second at most.
        asked_to_stop: whether the process was asked to end.
        over: whether a hook has ended the training.
        agreed: one number for all the processes that train together, from what each of them says.

    Raises:
        PreemptedError: it was; the hooks have seen the stretch up to there, and know that the loop ends.
    """
    step, told, pace = start, 0.0, PART_SECONDS
    stretch: Stretch | None = None
    while step < total and not over():
        stop = min(total, *(hook.next_stop(step) for hook in hooks))
        parts: list[StepsDone] = []
        while step < stop and not asked_to_stop():
            count = agreed(max(1, min(stop - step, int(PART_SECONDS / pace))))
            parts.append(advance(count))
            step += count
            pace = max(parts[-1].seconds / count, 1e-9)
            if time.monotonic() - told > _NEWS_SECONDS or step == total:
                with measured("saving"):
                    news(step, parts[-1])
                told = time.monotonic()
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
                f"asked to end (SIGTERM) at step {step} of {total}; the same command goes on from there"
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
def stop_on_sigterm() -> Iterator[Callable[[], bool]]:
    """While its body runs, SIGTERM is a request to end soon and well.

    Yields:
        Whether SIGTERM has come; always False outside the main thread, which alone can handle signals.
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
