"""Rehearses a training: does everything once on the first batch, then restores the state.

A rehearsal takes a few steps of each phase, evaluates a batch, runs the probe, writes and reads back a checkpoint, and
calls every hook. Failures appear within seconds, as permanent errors with their cause. Durations are measured,
which gives an estimate of the whole run. The rehearsal runs in training's own process and reuses its graph, so it costs
a few steps and no second start; only later phases have graphs of their own.
"""

# pyright: standard
from __future__ import annotations

import contextlib
import math
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from podline import __version__
from podline.base.errors import ArtifactError, SettingsError
from podline.base.figures import size
from podline.data.records import IMAGE
from podline.recipes.kind_table import code_of_targets, facts_named
from podline.stages.tools import Preflight
from podline.store import digests
from podline.training import devices
from podline.training.evaluations import Evaluate
from podline.training.hooks import InstalledHook, SaveCheckpoints
from podline.training.loop import Hook, Stretch
from podline.training.publication import require_reloadable
from podline.training.run import PhasedSteps, Run
from podline.training.steps import permanent

_TIMED_STEPS = 3
# Number of examples whose fields are in memory at once while all of them are checked.
_AT_ONCE = 4096
_CGROUP = Path("/sys/fs/cgroup")
# Layers whose outputs are kept for the backward pass; the outputs of others may share memory with these.
_KEPT_OUTPUTS = (keras.layers.Conv2D, keras.layers.DepthwiseConv2D, keras.layers.Dense)


class StepTimes(NamedTuple):
    """The measured times of a phase's steps.

    Attributes:
        steps: number of remaining steps.
        computing: number of these steps that compute features; see :mod:`podline.training.frozen_features`.
        tracing: seconds of tracing.
        first: seconds of the first step.
        fresh: seconds of a step that computes features.
        again: seconds of a step whose features are already computed.
    """

    steps: int
    computing: int
    tracing: float
    first: float
    fresh: float
    again: float

    @property
    def features(self) -> float:
        """Seconds in which the phase computes features."""
        return self.computing * (self.fresh - self.again)

    @property
    def saved(self) -> float:
        """Seconds saved in the remaining steps, which need not compute the same features again."""
        return (self.steps - self.computing) * (self.fresh - self.again)

    @property
    def seconds(self) -> float:
        """Seconds of all remaining steps."""
        return self.steps * self.again + self.features


def rehearse_later_phases(run: Run, step: int) -> list[StepTimes]:
    """Take a few steps of each phase after the phase of ``step``; leave the run's state unchanged.

    Returns:
        The measured times, one entry per phase; empty if no phase follows.

    Raises:
        SettingsError: a phase fails; the message has the cause.
        ArtifactError: an example of a phase's first batch is damaged.
    """
    never = run.recipe.by_phase[len(run.plan.phases) :]
    for epoch, _ in never:
        run.reporter.warn(f"the phase from epoch {epoch} never begins, because the training ends earlier")
    later = [phase for phase in run.plan.phases if phase.first > step]
    if not later:
        return []
    before, times = run.state.snapshot(), list[StepTimes]()
    for phase in later:
        run.reporter.log(f"rehearsal: the phase from step {phase.first}")
        with permanent(run.spec):
            steps = run.steps(phase.first)
            times.append(_timed(run, phase.first, steps, steps.advance(1).seconds))
    run.restore(before)
    return times


def _timed(run: Run, step: int, steps: PhasedSteps, first: float) -> StepTimes:
    """Time more steps of the phase of ``step``, whose first step took ``first`` seconds."""
    left = run.plan.phase(step).end - step
    if left == 1:
        return StepTimes(left, steps.computing(step), steps.tracing_seconds, first, first, first)
    count = min(_TIMED_STEPS, left - 1)
    fresh = again = steps.advance(count).seconds / count
    if steps.computing(step):
        steps.rewind(step + 1)
        again = min(steps.advance(count).seconds / count, fresh)
    return StepTimes(left, steps.computing(step), steps.tracing_seconds, first, fresh, again)


def rehearse(
    run: Run, step: int, steps: PhasedSteps, hooks: Sequence[Hook], later: Sequence[StepTimes] = ()
) -> Preflight:
    """Rehearse the run once; leave its state, logs and folder unchanged. The store remembers the passed checks.

    Args:
        run: the run to rehearse.
        step: the step from which the run continues.
        steps: the run's training steps from this step.
        hooks: the run's hooks.
        later: the result of :func:`rehearse_later_phases`.

    Raises:
        SettingsError: a batch does not fit into memory, or a step, a hook or the loss fails; the message has the cause.
        ArtifactError: an example has an impossible target; the message names the example, its shard and byte offset.
        DivergenceError: the loss of the first batch, or its gradient, is not finite.
        StoreError: checkpoints cannot be written.
    """
    started = time.monotonic()
    run.reporter.log("rehearsal: one step, one batch of the evaluation, one checkpoint, every hook")
    if devices.describe(run.strategy).endswith("cpu"):
        shape = run.manifest.image_shape
        for recipe in (phase.recipe for phase in run.plan.phases if run.batches(phase).image_shape == shape):
            parts = recipe.accumulate * run.agreement.processes
            _require_memory(run.state.model, recipe.batch_size, parts, available_memory())
    _look_at_examples(run)
    before = run.state.snapshot()
    with permanent(run.spec):
        first = steps.advance(1)
        for hook in hooks:
            hook.rehearse(Stretch(first.series, first.seconds, first.waiting, step=step + 1, last=False))
            if isinstance(hook, InstalledHook):  # it may act differently at the end of the run
                end = run.plan.total_steps
                hook.rehearse(Stretch(first.series, first.seconds, first.waiting, step=end, last=True))
        times = _timed(run, step, steps, first.seconds)
    if run.agreement.chief:
        require_reloadable(run.shared, run.recipe, run.state.evaluated, run.some_images(), run.reporter)
    run.state.restore(before)
    answer = _estimate(run, step, [times, *later], hooks)
    return answer.model_copy(update={"seconds": time.monotonic() - started})


def _estimate(run: Run, step: int, times: Sequence[StepTimes], hooks: Sequence[Hook]) -> Preflight:
    [evaluate] = [hook for hook in hooks if isinstance(hook, Evaluate)]
    [save] = [hook for hook in hooks if isinstance(hook, SaveCheckpoints)]
    total, current = run.plan.total_steps, times[0]
    evaluations = sum(due > step for due in run.plan.evaluations)
    checkpoint = save.rehearsed
    stepping = sum(phase.seconds for phase in times) + sum(phase.tracing for phase in times[1:])
    by_steps, by_time = (total - step) / run.recipe.checkpoint_steps, stepping / (60 * run.recipe.checkpoint_minutes)
    return Preflight(
        run=run.spec.run,
        devices=devices.describe(run.strategy),
        steps=total - step,
        batch_size=run.recipe.batch_size,
        first_step=current.tracing + current.first,
        phases=len(times),
        step=current.fresh,
        evaluation=evaluate.rehearsed,
        evaluations=evaluations,
        checkpoint=checkpoint.seconds,
        checkpoint_bytes=checkpoint.bytes,
        training_seconds=stepping
        + evaluations * evaluate.rehearsed
        + math.ceil(max(by_steps, by_time)) * checkpoint.seconds,
        features_seconds=sum(phase.features for phase in times),
        saved_seconds=sum(phase.saved for phase in times),
        memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        device_memory_bytes=_device_memory(),
    )


def _look_at_examples(run: Run) -> None:
    """Check all training examples for impossible targets without decoding their images.

    This reads every record, so the store remembers that the training split of a manifest passed.
    """
    described = {
        "manifest": digests.of_bytes(run.manifest.to_bytes()),
        "kind": run.recipe.kind,
        "code": code_of_targets(run.recipe.kind),
        "podline": __version__,
    }
    name = f"targets/{digests.of_json(described)}.json"
    if run.shared.exists(name):
        return
    fields = tuple(field.name for field in run.manifest.fields if field.name != IMAGE)
    reader, targets = run.training_reader, facts_named(run.recipe.kind).targets
    for start in range(0, len(reader), _AT_ONCE):
        run.reporter.progress(start, len(reader), "examples checked")
        part = np.arange(start, min(start + _AT_ONCE, len(reader)))
        found = targets.check(reader.gather(part, fields), run.manifest)
        if found:
            place, reason = found
            file, record, offset = reader.locate(int(part[place]))
            raise ArtifactError(
                f"example {part[place]} of the training split (record {record} of {file}, at byte {offset}) {reason}; "
                "convert the data again"
            )
    if run.agreement.chief:
        run.shared.publish_json(name, {"dataset": run.manifest.folder, **described}, replace=True)


def _require_memory(model: keras.Model, batch_size: int, parts: int, available: int | None) -> None:
    """Check that memory has room for the outputs of convolutions and dense layers, for one of ``parts`` of a batch."""
    outputs: list[Any] = [layer.output for layer in model.layers if isinstance(layer, _KEPT_OUTPUTS)]
    each = sum(tf.as_dtype(output.dtype).size * math.prod(output.shape[1:]) for output in outputs)
    needed = batch_size // parts * each
    if available is not None and needed > available:
        most = available // each * parts
        smaller = f"a batch_size of at most {most}, or " if most else ""
        raise SettingsError(
            f"batch_size={batch_size} needs more than {size(needed)} of memory for a step vs {size(available)} free; "
            f"choose {smaller}a narrower model"
        )


def available_memory() -> int | None:
    """Return the bytes that kernel and control group let this process allocate; None if they do not say."""
    limits = []
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with contextlib.suppress(OSError, ValueError):  # "max" means no limit
        limit, used = ((_CGROUP / name).read_text() for name in ("memory.max", "memory.current"))
        limits.append(int(limit) - int(used))
    return min(limits, default=None)


def _device_memory() -> int:
    if not tf.config.list_logical_devices("GPU"):
        return 0
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
