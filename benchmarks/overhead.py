"""Measured in a child process: what watching over a training costs, beside the bare steps."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from benchmarks.parts import Parts
from benchmarks.timing import in_turns
from podline.data.reader import open_split
from podline.documents.metrics_log import METRICS, MetricsLine, MetricsLog
from podline.recipes import registry
from podline.recipes.settings import Duration
from podline.store.opening import open_store
from podline.training.checkpoints import TimeSpent
from podline.training.divergence import StopOnDivergence
from podline.training.findings import Findings, JudgeStretches, judge_probe
from podline.training.gradients import GradientNorms
from podline.training.hooks import RunClock, WriteMetrics
from podline.training.loop import Hook, run_loop
from podline.training.objective import IMAGE
from podline.training.pace import Paced
from podline.training.plan import EVALUATION_SPLIT
from podline.training.probe import Probe
from podline.training.steps import TrainingSteps
from podline.training.tensorboard import EventFile

# The cifar10 recipe on the 8,068 images that it was measured on has an evaluation, and so a probe, every so many steps.
_PROBED_EVERY = 126
_PROBED = 64


class _NoNorms(GradientNorms):
    """Norms that nobody computes."""

    def of(self, gradients: Any) -> Any:  # noqa: ARG002 (that is the point)
        return tf.zeros(self.shape)


class _BareSteps(TrainingSteps):
    """Steps that tell of the loss and of what is counted, and of nothing else."""

    norms = _NoNorms


def overhead(root: str, folder: str, batch_size: int, steps: int, repetitions: int) -> dict[str, list[float]]:
    """Seconds for a stretch of training steps, watched over and bare, in turns.

    Watched over is: the norms of the gradients in each step; the loop with every hook that looks for a failure or a
    finding; metrics and TensorBoard; the pace that is told to the supervisor; and the stretch's part of a probe, of
    which there is one at each evaluation.

    Args:
        root: the store.
        folder: the data set's folder in it.
        batch_size: examples in a step.
        steps: in a stretch; there is a line of metrics for each.
        repetitions: stretches of each side.
    """
    changes = {"batch_size": batch_size, "duration": Duration(steps=(repetitions + 1) * steps)}
    recipe = registry.get("cifar10").model_copy(update=changes)
    parts = Parts(recipe, root, folder, "cpu")
    bare = parts.steps(_BareSteps)
    with (
        tempfile.TemporaryDirectory() as work,
        MetricsLog(Path(work, METRICS)) as log,
        EventFile(Path(work), ()) as board,
    ):

        def write(line: MetricsLine) -> None:
            log.write(line)
            board.write(line)

        watched = _Watched(parts, _probed(parts, root, folder), steps, write)
        watched.stretch()
        bare.advance(steps)
        seconds = in_turns(watched.stretch, lambda: bare.advance(steps), repetitions)
        watched.probe()
        probes = in_turns(watched.probe, lambda: None, repetitions).ours
    part_of_a_probe = statistics.median(probes) * steps / _PROBED_EVERY
    return {"ours": [took + part_of_a_probe for took in seconds.ours], "other": seconds.other}


def _probed(parts: Parts, root: str, folder: str) -> npt.NDArray[np.uint8]:
    """The images that a probe looks at."""
    test = open_split(open_store(root), folder, parts.manifest, EVALUATION_SPLIT)
    return test.gather(np.arange(min(_PROBED, len(test))), (IMAGE,))[IMAGE]


class _Watched:
    """Training that is watched over, a stretch at a time."""

    def __init__(
        self, parts: Parts, images: npt.NDArray[np.uint8], steps: int, write: Callable[[MetricsLine], None]
    ) -> None:
        clock, plan = RunClock(TimeSpent(), time.monotonic()), parts.plan
        self._findings = Findings((), write, lambda _message: None)
        self._hooks: list[Hook] = [
            StopOnDivergence(plan.order, parts.recipe.explosion, (), lambda failure: failure.what),
            clock,
            WriteMetrics(write, plan, steps, clock, parts.objective),
            JudgeStretches(self._findings, ()),
        ]
        self._probe = Probe(parts.strategy, parts.state.evaluated, images, parts.recipe.model.data_format)
        self._advance = Paced(parts.steps(TrainingSteps).advance, lambda _seconds: None).advance
        self._taken, self._steps = 0, steps

    def stretch(self) -> None:
        """Takes the next stretch."""
        start, self._taken = self._taken, self._taken + self._steps
        run_loop(
            self._advance,
            start,
            self._taken,
            hooks=self._hooks,
            news=lambda _step, _part: None,
            asked_to_stop=lambda: False,
        )

    def probe(self) -> None:
        """Looks into the model."""
        judge_probe(self._findings, self._taken, self._probe.figures())
