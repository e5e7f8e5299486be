"""Explains a diverged loss: repeats the failing step and checks its batch part by part.

The state before the failing step is gone, since the device went on until the next stop. Order, augmentation and rate
depend only on the step, so training again from the newest checkpoint reproduces that state. This takes as long as the
training since that checkpoint. Before that, the failing batch is tried with the checkpoint's weights: a record with an
impossible target fails with any weights, and then no step is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.data.reader import SplitReader
from podline.documents.metrics_log import AnnealingLine, PlateauLine, read_metrics
from podline.errors import ArtifactError, StoreError
from podline.input.pipeline import MASK, Arrays, EvaluationInput
from podline.kinds.contract import kind_of
from podline.models.precision import policy
from podline.plurals import plural
from podline.training import devices
from podline.training.checks import BatchCheck, Fault
from podline.training.divergence import Failure
from podline.training.loop import StepsDone
from podline.training.objective import Objective
from podline.training.plan import TRAINING_SPLIT
from podline.training.run import Run

Ids = npt.NDArray[np.int64]

_NAMED = 8
# If a few examples hold at least this share of an exploded loss, they are its cause.
_MOST_OF_IT, _FEW = 0.5, 1 / 8
_CALMER = "a lower learning rate, a longer warm-up or clip_norm may prevent it"


def explain(run: Run, failure: Failure) -> str:
    """Return the cause of a failure and its remedy, in a few lines.

    This changes the state of the run, which is over.

    The text names the examples that are the cause, with file and byte, and the layer, loss term or gradient that failed
    first; or it says that no single example is the cause.
    """
    start = _restored(run, failure.step)
    if start is None:
        run, start = run.begun_again(), 0
    run.reporter.log(f"step {failure.step + 1} failed; looking for the cause, from the weights of step {start}")
    return _Search(run, failure, start).cause()


def explain_evaluation(run: Run, objective: Objective, batches: EvaluationInput, reader: SplitReader) -> str:
    """Return the examples of an evaluation whose loss is never finite; or blame the weights or the device."""
    with tf.device("CPU:0"):
        fresh = BatchCheck(kind_of(run.recipe).model(run.recipe, run.manifest), objective)
    check = BatchCheck(run.on_cpu(run.state.evaluated), objective)
    wrong, always = list[int](), list[int]()
    for number in range(batches.batches()):
        arrays = batches.batch(number)
        fields = {name: arrays[name] for name in objective.fields}
        failed = ~np.isfinite(check.losses(fields, training=False)) & (arrays[MASK] > 0)
        first = number * len(failed)
        wrong += (np.flatnonzero(failed) + first).tolist()
        if failed.any():
            always += (np.flatnonzero(failed & ~np.isfinite(fresh.losses(fields, training=False))) + first).tolist()
    count = f"{len(wrong)} of its {plural(batches.count, 'example')}"
    if not wrong:
        return f"on the CPU every loss is finite: the device's precision or order of operations matters; {_CALMER}"
    if not always:
        return (
            f"{count} have no finite loss, and all have one with random weights: the weights are the cause; {_CALMER}"
        )
    ids = always if batches.ids is None else batches.ids[always].tolist()
    named = "\n".join(_place_of(reader, one) for one in ids[:_NAMED])
    return (
        f"{count} have no finite loss, {len(always)} of them with random weights either; correct these records at the "
        f"source, and convert again:\n{named}"
    )


def _place_of(reader: SplitReader, example: int) -> str:
    file, record, offset = reader.locate(example)
    split = "training" if reader.info.name == TRAINING_SPLIT else reader.info.name
    return f"example {example} of the {split} split: record {record} of {file}, at byte {offset}"


def _restored(run: Run, step: int) -> int | None:
    """Restore a run's state from the newest complete checkpoint up to a step; return its step, or None."""
    for there in run.checkpoints.steps():
        if there <= step:
            try:
                run.restore(run.checkpoints.arrays(run.checkpoints.describe(there)))
            except (ArtifactError, StoreError) as error:
                run.reporter.warn(f"the checkpoint of step {there} is skipped: {error}")
                continue
            return there
    return None


class _Search:
    """The search for the cause of one failure."""

    def __init__(self, run: Run, failure: Failure, start: int) -> None:
        self._run, self._failure, self._start = run, failure, start
        self._earlier = self._check(failure.step)

    def cause(self) -> str:
        """Return the cause; see :func:`explain`."""
        ids, batch = self._batch(self._failure.step)
        fault = self._earlier.fault(batch)
        culprits = self._culprits(self._earlier, batch) if fault else Culprits()
        if culprits.places:
            return self._blamed(self._earlier, ids, batch, culprits.places)
        step = self._come_by()
        if self._run.asked_to_stop():
            return "SIGTERM ended the search for the cause"
        if step is None:
            return (
                f"repeated from step {self._start}, the same steps did not fail; deterministic=true makes them "
                "equal to the bit; if it is set, check the machine's memory"
            )
        return self._with_weights_of(step)

    def _with_weights_of(self, step: int) -> str:
        """Return the cause for the weights just before a step that failed again."""
        ids, batch = self._batch(step)
        check = self._check(step)
        fault = check.fault(batch)
        if fault is None:
            return self._exploded(check, ids, batch)
        culprits = self._culprits(check, batch)
        if culprits.places:
            return self._blamed(check, ids, batch, culprits.places)
        layer, largest = check.largest_output(batch)
        alone = "each one fails by itself" if culprits.all_fail else "none fails by itself"
        return (
            f"no single example is the cause: of the batch's examples {alone}\n{_first_wrong(fault)}\n"
            f"the weights are the cause: the largest output is {largest:.3g}, of layer {layer}; {_CALMER}"
        )

    def _exploded(self, check: BatchCheck, ids: Ids, batch: Arrays) -> str:
        """Return the cause for a batch that is finite on the CPU."""
        losses = check.losses(batch)
        if self._failure.limit == np.inf:
            if self._in_float32_on_cpu:
                layer, largest = check.largest_output(batch)
                return (
                    "no single example is the cause: taken layer by layer the batch is finite, with a loss of "
                    f"{losses.mean():.4g}\nthe weights are the cause: the largest output is {largest:.3g}, of layer "
                    f"{layer}; {_CALMER}"
                )
            return (
                f"on the CPU the same batch is finite, with a loss of {losses.mean():.4g}: the device's precision or "
                f"order of operations makes the difference; {_CALMER}"
            )
        ranked = np.argsort(losses)[::-1][: max(int(len(ids) * _FEW), 1)]
        held = np.cumsum(losses[ranked]) / losses.sum()
        layer, largest = check.largest_output(batch)
        if held[-1] > _MOST_OF_IT:
            few = ranked[: int(np.argmax(held > _MOST_OF_IT)) + 1]
            share = f"{held[len(few) - 1]:.0%} of the batch's loss"
            return f"{self._named(ids, batch, few.tolist())}\n{share} comes from these examples; look at these records"
        return (
            f"no single example is the cause: their losses lie between {losses.min():.3g} and {losses.max():.3g}\n"
            f"the weights are the cause: the largest output is {largest:.3g}, of layer {layer}; {_CALMER}"
        )

    @property
    def _in_float32_on_cpu(self) -> bool:
        """Return whether the run uses float32 on the CPU like the check, so that a comparison adds nothing."""
        where = devices.describe(self._run.strategy)
        return where.endswith("cpu") and policy(self._run.recipe.precision) == "float32"

    def _blamed(self, check: BatchCheck, ids: Ids, batch: Arrays, places: Sequence[int]) -> str:
        """Describe examples that fail alone."""
        fault = check.fault(batch, places[:1])
        assert fault is not None  # noqa: S101 (it was found by this)
        rest = np.delete(np.arange(len(ids)), places).tolist()
        lines = [self._named(ids, batch, places), _first_wrong(fault)]
        lines.append(
            "without them the batch is finite" if not check.fault(batch, rest) else "without them it fails too"
        )
        if self._earlier.fault(batch, places[:1]):
            lines[-1] += (
                f"; they fail with the weights of step {self._start} already: correct these records at the source and "
                "convert again, or look at the loss"
            )
        else:
            lines[-1] += (
                f"; with the weights of step {self._start} they did not: look at these records; if they are correct, "
                f"{_CALMER}"
            )
        return "\n".join(lines)

    def _named(self, ids: Ids, batch: Arrays, places: Sequence[int]) -> str:
        many = len(places) > 1
        count = f"at least {MOST}" if len(places) == MOST else str(len(places))
        lines = [f"{count} examples of the training split are the cause:" if many else "the cause is"]
        lines += [self._example(int(ids[place]), batch, place) for place in places[:_NAMED]]
        if len(places) > _NAMED:
            lines.append("…")
        return ("\n" if many else " ").join(lines)

    def _example(self, number: int, batch: Arrays, place: int) -> str:
        values = "".join(_field(name, column[place]) for name, column in batch.items())
        return f"{_place_of(self._run.training_reader, number)}{values}"

    def _batch(self, step: int) -> tuple[Ids, Arrays]:
        batches = self._run.batches(self._run.plan.phase(step))
        epoch, ids, arrays = batches.read(step)
        return batches.order.records(ids), batches.augmented(epoch, ids, arrays)

    def _check(self, step: int) -> BatchCheck:
        """Return the checks of the current state for the batch of a step."""
        run, phase = self._run, self._run.plan.phase(step)
        return BatchCheck(run.on_cpu(run.state.model, phase), run.objective_of(phase))

    def _culprits(self, check: BatchCheck, batch: Arrays) -> Culprits:
        def fails(places: Sequence[int]) -> bool:
            self._tell(self._failure.step)
            return check.fault(batch, places) is not None

        return find_culprits(len(next(iter(batch.values()))), fails)

    def _come_by(self) -> int | None:
        """Train again until a step fails, and restore the state before it; return its step, or None if none fails."""
        run, end = self._run, self._failure.step + 1
        run.reporter.log(f"repeating {end - self._start} steps from step {self._start} to find the cause")
        lines = read_metrics(run.log.path)
        factors = {line.step: line.factor for line in lines if isinstance(line, PlateauLine)}
        factor = next((factors[step] for step in sorted(factors, reverse=True) if step <= self._start), 1.0)
        rejected = {line.step: line.state for line in lines if isinstance(line, AnnealingLine) and not line.accepted}
        steps = run.steps(self._start, lambda: factor)
        for step in range(self._start, end):
            if run.asked_to_stop():
                return None
            if step in rejected and step > self._start:  # its checkpoint was written after the rejection
                run.go_back_to(rejected[step])
            factor = factors.get(step, factor)
            before = run.state.snapshot()
            if self._failed(steps.advance(1)):
                run.state.restore(before)
                return step
            self._tell(step)
        return None

    def _failed(self, part: StepsDone) -> bool:
        loss, norm = part.series["loss"][0], part.series["gradient_norm"][0]
        return not (np.isfinite(loss) and np.isfinite(norm) and loss <= self._failure.limit)

    def _tell(self, step: int) -> None:
        self._run.reporter.progress(step, self._run.plan.total_steps, "steps")


def _first_wrong(fault: Fault) -> str:
    return f"the first fault is in {fault.where}, which is {fault.value}; {fault.before}"


def _field(name: str, value: Any) -> str:
    """Summarise an example's field: a number, or the share of an array that is not finite."""
    if not np.ndim(value):
        return f", {name} {value}"
    wrong = np.count_nonzero(~np.isfinite(value))
    return f", {name} with {wrong} of {np.size(value)} numbers not finite" if wrong else ""


# Number of culprits to search for; a batch with more is described by these.
MOST = 32
# Number of examples, spread over the batch, that are tried alone: if all of them fail, the weights are the cause.
_TRIED = 8

Fails = Callable[[Sequence[int]], bool]


@dataclass(frozen=True)
class Culprits:
    """The result of the search for examples that fail alone.

    Attributes:
        places: places in the batch of the examples that fail alone; :data:`MOST` at most.
        all_fail: every tested example fails alone, so no single example is the cause.
    """

    places: tuple[int, ...] = ()
    all_fail: bool = False


def find_culprits(count: int, fails: Fails) -> Culprits:
    """Find the examples of a failing batch that fail alone.

    For k such examples among n it takes about 2 k log₂(n) tries.

    Args:
        count: number of examples in the batch.
        fails: returns whether the examples at some places fail as a batch of their own.
    """
    spread = sorted({place * (count - 1) // max(_TRIED - 1, 1) for place in range(_TRIED)})
    if all(fails([place]) for place in spread):
        return Culprits(all_fail=True)
    found: list[int] = []
    _search(range(count), fails, found)
    return Culprits(tuple(found))


def _search(places: Sequence[int], fails: Fails, found: list[int]) -> None:
    """Add the culprits among some places that fail together."""
    if len(places) == 1:
        found.append(places[0])
        return
    middle = len(places) // 2
    for half in (places[:middle], places[middle:]):
        if len(found) < MOST and fails(half):
            _search(half, fails, found)
