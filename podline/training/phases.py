"""Phases of a run: one batch size, one set of trainable layers, one graph each.

Where phases begin depends on the step alone, so a run that goes on in the middle of one is in it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras

from podline.errors import SettingsError
from podline.training.loop import StepsDone
from podline.training.pace import Paced
from podline.training.plan import Phase, Plan
from podline.training.steps import TrainingSteps

Batches = Callable[[Phase, int], Iterable[Any]]


class PhasedSteps:
    """Training steps whose graph changes with the phase; like :class:`podline.training.steps.TrainingSteps`."""

    def __init__(
        self,
        plan: Plan,
        step: int,
        begin: Callable[[Phase, Iterable[Any]], TrainingSteps],
        batches: Batches,
        pace: Callable[[float | None], None],
    ) -> None:
        """Steps from ``step`` on.

        Args:
            plan: the run in steps.
            step: how many are done.
            begin: the steps of a phase, on its batches.
            batches: the batches of a phase from a step on, each replica's part of them.
            pace: see :class:`podline.training.pace.Paced`.
        """
        self._plan, self._begin, self._batches, self._pace = plan, begin, batches, pace
        self._traces_before = 0
        self._enter(step)

    def advance(self, count: int) -> StepsDone:
        """Takes ``count`` steps, all of one phase."""
        if self._step == self._phase.end:
            self._traces_before = self.traces
            self._enter(self._step)
        part = self._paced.advance(count)
        self._step += count
        return part

    def rewind(self, step: int) -> None:
        """Goes on from another step of the phase; the graph stays."""
        self._steps.rewind(self._batches(self._phase, step))
        self._step = step

    @property
    def tracing_seconds(self) -> float:
        """What turning the phase's step into a graph took."""
        return self._steps.tracing_seconds

    @property
    def traces(self) -> int:
        """How often the step was turned into a graph, in all phases so far."""
        return self._traces_before + self._steps.traces

    def _enter(self, step: int) -> None:
        self._step, self._phase = step, self._plan.phase(step)
        self._steps = self._begin(self._phase, self._batches(self._phase, step))
        # The first part of another graph may take long, and its pace is its own.
        self._paced = Paced(self._steps.advance, self._pace)


def let_train(model: keras.Model, beginnings: Sequence[str]) -> None:
    """Lets the layers train whose names start with one of some beginnings, and no other.

    Batch norm that does not train normalises by its moving statistics and leaves them as they are.

    Raises:
        SettingsError: a beginning fits no layer with weights, or no variable would train.
    """
    weighted = [layer for layer in model.layers if layer.weights]
    for beginning in beginnings:
        if not any(layer.name.startswith(beginning) for layer in weighted):
            raise SettingsError(
                f"trainable_layers: no layer with weights starts with {beginning!r}; "
                f"there are: {', '.join(layer.name for layer in weighted)}"
            )
    for layer in model.layers:
        layer.trainable = layer.name.startswith(tuple(beginnings))
    if not model.trainable_variables:
        raise SettingsError(f"trainable_layers={list(beginnings)}: no variable would train; name a layer that has one")
