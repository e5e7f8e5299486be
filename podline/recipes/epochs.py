"""Converts between epochs and steps, also if the batch size changes during a run."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple


class EpochPlace(NamedTuple):
    """The position of a step in its epoch.

    Attributes:
        epoch: number of the epoch, from 0.
        batch: number of the batch in the epoch, from 0.
        batches: number of batches in the epoch.
        batch_size: examples in the batch, over all replicas.
    """

    epoch: int
    batch: int
    batches: int
    batch_size: int


class _Segment(NamedTuple):
    """A range of epochs with one batch size: the first epoch, and the steps and examples before this epoch."""

    epoch: int
    step: int
    examples: int
    batch_size: int
    steps_per_epoch: int


class Epochs:
    """The epochs of a run; an epoch's incomplete last batch is dropped.

    Attributes:
        changes: epoch 0, and all epochs at which the batch size changes.
        steps_per_epoch: number of complete batches in the first epoch.
    """

    def __init__(self, count: int, batch_size: int, later: Sequence[tuple[int, int]] = ()) -> None:
        """Define epochs of ``count`` examples.

        Args:
            count: examples in an epoch.
            batch_size: batch size of the first epoch.
            later: pairs (epoch, batch size from this epoch on), in ascending order.

        Raises:
            ValueError: a batch is empty or larger than the epoch.
        """
        self._segments: list[_Segment] = []
        for epoch, size in ((0, batch_size), *later):
            if not 0 < size <= count:
                raise ValueError(f"batch_size={size} vs {count} examples: give a batch_size from 1 to {count}")
            step = round(self.step_at(epoch)) if self._segments else 0
            examples = self.examples_before(step) if self._segments else 0
            self._segments.append(_Segment(epoch, step, examples, size, count // size))
        self.changes = tuple(segment.epoch for segment in self._segments)
        self.steps_per_epoch = self._segments[0].steps_per_epoch

    def place(self, step: int) -> EpochPlace:
        """Return the position of a step, counted from 0, in its epoch."""
        segment = self._of_step(step)
        epochs, batch = divmod(step - segment.step, segment.steps_per_epoch)
        return EpochPlace(segment.epoch + epochs, batch, segment.steps_per_epoch, segment.batch_size)

    def epoch_at(self, step: int) -> float:
        """Return the number of epochs, possibly with a fraction, after ``step`` steps."""
        segment = self._of_step(step)
        return segment.epoch + (step - segment.step) / segment.steps_per_epoch

    def step_at(self, epoch: float) -> float:
        """Return the number of steps, possibly with a fraction, after ``epoch`` epochs."""
        segment = self._of_epoch(epoch)
        return segment.step + (epoch - segment.epoch) * segment.steps_per_epoch

    def examples_before(self, step: int) -> int:
        """Return the number of examples in the first ``step`` steps."""
        segment = self._of_step(step)
        return segment.examples + (step - segment.step) * segment.batch_size

    def _of_step(self, step: int) -> _Segment:
        return self._segments[bisect.bisect_right([at.step for at in self._segments], step) - 1]

    def _of_epoch(self, epoch: float) -> _Segment:
        return self._segments[bisect.bisect_right([at.epoch for at in self._segments], epoch) - 1]
