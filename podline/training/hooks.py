"""Hooks between stretches of steps. This module does not need TensorFlow.

The hooks run in this order: :mod:`podline.training.divergence`, clock, metrics, findings, evaluation, the hooks of
installed packages, checkpoint. So no hook records a loss that is not finite, and a checkpoint is written after all
other outputs of its step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Arrays
from podline.base.entry_points import explained
from podline.base.errors import DivergenceError, SettingsError
from podline.base.stopwatch import spans
from podline.documents.metrics_log import MetricsLine, StepsLine, StopLine
from podline.training.checkpoints import CheckpointCost, TimeSpent
from podline.training.loop import Hook, Stretch, next_multiple

if TYPE_CHECKING:  # run imports TensorFlow
    from podline.training.run import Run

_BLOCK = "gradient_norm/"


class RunClock(Hook):
    """Adds up the time that a run takes over all its starts. This hook runs before the hooks that record the time."""

    def __init__(self, before: TimeSpent, started: float) -> None:
        """Continue from the time of earlier starts; ``started`` is ``time.monotonic()`` at this start."""
        self._before, self._started = before, started
        self._training = self._waiting = 0.0

    def after(self, stretch: Stretch) -> None:
        """Add the time of a stretch."""
        self._training += stretch.seconds
        self._waiting += stretch.waiting

    def rehearse(self, stretch: Stretch) -> None:  # noqa: ARG002 (a rehearsal does not count)
        """Read the clock without adding to it."""
        self.read()

    def read(self) -> TimeSpent:
        """Return the time that the run has taken so far."""
        return TimeSpent(
            wall=self._before.wall + time.monotonic() - self._started,
            training=self._before.training + self._training,
            waiting=self._before.waiting + self._waiting,
        )


class WriteMetrics(Hook):
    """Writes one line of metrics at each stop of the loop."""

    reads = ("loss", "gradient_norm")

    def __init__(
        self, run: Run, write: Callable[[StepsLine], None], clock: RunClock, factor: Callable[[], float]
    ) -> None:
        """Prepare the lines of a run; ``factor`` returns the latest multiplier of the schedule's rate."""
        self._run, self._plan, self._write, self._clock, self._factor = run, run.plan, write, clock, factor

    def next_stop(self, step: int) -> int:
        """Return the next multiple of ``summary_steps`` or an earlier end of the phase: one batch size per line."""
        return min(next_multiple(step, self._run.recipe.summary_steps), self._plan.phase(step).end)

    def after(self, stretch: Stretch) -> None:
        """Write the line of a stretch."""
        self._write(self._line(stretch))

    def rehearse(self, stretch: Stretch) -> None:
        """Format a line without writing it."""
        self._line(stretch).model_dump_json()

    def _line(self, stretch: Stretch) -> StepsLine:
        losses, objective = stretch.series["loss"], self._run.objective
        examples = stretch.steps * self._plan.phase(stretch.first).recipe.batch_size
        return StepsLine(
            step=stretch.step,
            epoch=self._plan.epoch(stretch.step),
            loss=_mean(losses),
            learning_rate=self._plan.rate(stretch.step - 1) * self._factor(),
            gradient_norm=_mean(stretch.series["gradient_norm"]),
            gradient_norms={
                name.removeprefix(_BLOCK): _mean(values)
                for name, values in stretch.series.items()
                if name.startswith(_BLOCK)
            },
            examples_per_second=examples / stretch.seconds,
            waiting=stretch.waiting / stretch.seconds,
            seconds=self._clock.read().training,
            time=time.time(),
            losses=tuple(losses.tolist()),
            spans=spans(),
            **objective.figures(stretch.sums(objective.measured), examples),
        )


def _mean(values: npt.NDArray[np.float32]) -> float:
    return float(np.mean(values, dtype=np.float64))


class SaveCheckpoints(Hook):
    """Saves a checkpoint every N steps or minutes, of states that may be restored, and at the end; runs last."""

    def __init__(
        self, run: Run, clock: RunClock, protected_step: Callable[[], int | None], due: Callable[[int], bool]
    ) -> None:
        """Prepare the checkpoints of a run.

        Args:
            run: the run whose state is saved.
            clock: measures the time that the run takes.
            protected_step: returns the step whose state may be restored later; this step always gets a checkpoint.
            due: returns whether a step must get a checkpoint for another reason.
        """
        self._run, self._clock, self._protected_step, self._due = run, clock, protected_step, due
        self._saved, self._saved_step = time.monotonic(), -1
        self.rehearsed = CheckpointCost(0.0, 0)

    def next_stop(self, step: int) -> int:
        """Return the next multiple of ``checkpoint_steps``; minutes are checked at every stop."""
        return next_multiple(step, self._run.recipe.checkpoint_steps)

    def after(self, stretch: Stretch) -> None:
        """Save if a checkpoint is due.

        Raises:
            DivergenceError: a variable is not finite; no checkpoint is written.
            ArtifactError: the data have changed; no checkpoint is written.
            StoreError: the checkpoint cannot be written.
        """
        recipe, minutes = self._run.recipe, (time.monotonic() - self._saved) / 60
        late = bool(self._run.agreement.of_chief(minutes >= recipe.checkpoint_minutes))
        needed = self._protected_step() == stretch.step or self._due(stretch.step)
        if stretch.last or late or needed or stretch.step % recipe.checkpoint_steps == 0:
            self.at(stretch.step)

    def leaving(self, stretch: Stretch) -> None:
        """Save, unless this step is already saved.

        Raises:
            PodlineError: see :meth:`after`.
        """
        if self._saved_step != stretch.step:
            self.at(stretch.step)

    def at(self, step: int) -> None:
        """Save, replacing an earlier checkpoint of this step; raise the errors of :meth:`after`."""
        run, arrays = self._run, self._run.state.snapshot()
        _require_finite(arrays, step)
        run.require_data_unchanged()
        run.checkpoints.save(step, arrays, run.log.mark(), self._clock.read(), self._protected_step())
        self._saved, self._saved_step = time.monotonic(), step

    def rehearse(self, stretch: Stretch) -> None:  # noqa: ARG002 (any weights will do)
        """Write a complete checkpoint, read it back, and delete it."""
        self.rehearsed = self._run.checkpoints.rehearse(self._run.state.snapshot())


class InstalledHook(Hook):
    """A hook of an installed package; errors name the hook and its package."""

    def __init__(self, title: str, hook: object) -> None:
        """Wrap the result of a package's function; ``title`` is the function's name and package.

        Raises:
            SettingsError: the result is not a :class:`Hook`.
        """
        if not isinstance(hook, Hook):
            raise SettingsError(f"{title}: gives a {type(hook).__name__}, expected a podline.training.loop.Hook")
        self._title, self._hook, self.reads = title, hook, hook.reads

    @property
    def title(self) -> str:
        """Return the hook's name and package."""
        return self._title

    def next_stop(self, step: int) -> int:
        """Return the step at which the hook wants the loop to stop.

        Raises:
            SettingsError: the hook fails, or does not return a later step.
        """
        with explained(self._title):
            stop = self._hook.next_stop(step)
            if stop <= step:
                raise ValueError(f"next_stop({step}) gives {stop}, expected a later step")
            return stop

    def after(self, stretch: Stretch) -> None:
        """Call the hook; its exceptions, except PodlineErrors, end the run as SettingsErrors."""
        with explained(self._title):
            self._hook.after(stretch)

    def stop(self, stretch: Stretch) -> str:
        """Return why the hook ends the run, or an empty text; for exceptions see :meth:`after`."""
        with explained(self._title):
            reason = cast("object", self._hook.stop(stretch)) or ""
            if not isinstance(reason, str):
                raise TypeError(f"stop gives {reason!r}, expected the reason as text, or an empty text")
            return reason

    def leaving(self, stretch: Stretch) -> None:
        """Call the hook; for exceptions see :meth:`after`."""
        with explained(self._title):
            self._hook.leaving(stretch)

    def rehearse(self, stretch: Stretch) -> None:
        """Call the hook; for exceptions see :meth:`after`."""
        with explained(self._title):
            self._hook.rehearse(stretch)


class StopByHooks(Hook):
    """Ends the run if a hook asks for the end; writes a line that ends a resumed run as well."""

    def __init__(
        self,
        hooks: Sequence[InstalledHook],
        lines: Sequence[MetricsLine],
        write: Callable[[StopLine], None],
        agreed: Callable[[bool], bool],
    ) -> None:
        """Restore the end of an interrupted run from ``lines``; ``agreed`` returns whether any worker passes True."""
        self._hooks, self._write, self._agreed = hooks, write, agreed
        self.line = next((line for line in lines if isinstance(line, StopLine)), None)

    def after(self, stretch: Stretch) -> None:
        """Ask each hook whether to end the run."""
        for hook in self._hooks:
            reason = hook.stop(stretch)
            if self._agreed(bool(reason)) and self.line is None:
                self.line = StopLine(
                    step=stretch.step,
                    hook=hook.title,
                    reason=reason or "asked by another worker",
                    time=time.time(),
                )
                self._write(self.line)

    def rehearse(self, stretch: Stretch) -> None:
        """Do nothing."""


def _require_finite(arrays: Arrays, step: int) -> None:
    for name, array in arrays.items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise DivergenceError(
                f"{name} has values that are not finite after step {step}, although the loss is finite; "
                "try a lower learning rate, a longer warm-up or clip_norm"
            )
