"""Explains a diverged loss: computes the loss of each example of the failing batch, and names the failing examples.

The device continues until the next stop, so the weights before the failing step are lost. The losses are computed with
the weights after the stretch or, if those are not finite, with the newest saved weights.
"""

# pyright: standard
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.base.arrays import Arrays
from podline.base.errors import ArtifactError, StoreError
from podline.base.plurals import plural
from podline.contract.kind import kind_of
from podline.contract.objective import Objective
from podline.data.reader import SplitReader
from podline.documents.manifest import TRAIN
from podline.input.pipeline import MASK, EvaluationInput
from podline.training.checks import BatchCheck, FirstNonFinite
from podline.training.divergence import FailedStep
from podline.training.run import Run

_NAMED = 8
# If a few examples have at least this share of an exploded loss, they are its cause. A few: the share of a batch.
_MOST_OF_IT, _FEW = 0.5, 1 / 8
_CALMER = "a lower learning rate, a longer warm-up or clip_norm may prevent it"
_LOOK = f"look at these records and at the loss; if they are correct, {_CALMER}"


def explain(run: Run, failure: FailedStep) -> str:
    """Return the cause of a failure and its remedy, in a few lines; this may change the state of the failed run.

    The text names the examples whose loss is not finite, with file and byte offset, and the first layer, loss term or
    gradient that is not finite. Otherwise the text says that no single example is the cause.
    """
    run, whose = _with_finite_weights(run, failure.step)
    phase = run.plan.phase(failure.step)
    batches = run.batches(phase)
    epoch, ids, arrays = batches.read(failure.step)
    batch, records = batches.augmented(epoch, ids, arrays), batches.order.records(ids)
    check = BatchCheck(run.on_cpu(run.state.model, phase), run.objective_of(phase))
    losses = check.losses(batch)
    wrong = np.flatnonzero(~np.isfinite(losses))
    if 0 < len(wrong) < len(losses):
        fault = check.fault(batch, wrong[:1].tolist())
        first = f"{_first_wrong(fault)}\n" if fault else ""
        return (
            f"with {whose}, {_counted(len(wrong), len(losses))} no finite loss:\n"
            f"{_named(run, records, batch, wrong)}\n{first}{_LOOK}"
        )
    ranked = np.argsort(losses)[::-1][: max(int(len(losses) * _FEW), 1)]
    held = np.cumsum(losses[ranked]) / losses.sum()
    if np.isfinite(failure.limit) and held[-1] > _MOST_OF_IT:
        few = ranked[: int(np.argmax(held > _MOST_OF_IT)) + 1]
        share = f"with {whose}, {held[len(few) - 1]:.0%} of the batch's loss comes from"
        return f"{share}:\n{_named(run, records, batch, few)}\n{_LOOK}"
    return f"no single example is the cause: {_of_all(losses, whose)}\n{_weights(check, batch)}"


def explain_evaluation(run: Run, objective: Objective, batches: EvaluationInput, reader: SplitReader) -> str:
    """Return why an evaluation's loss is not finite: examples (which are listed), the weights or the device."""
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
    counted = _counted(len(wrong), batches.count)
    if not wrong:
        return f"on the CPU every loss is finite: the device's precision or order of operations matters; {_CALMER}"
    if not always:
        return f"{counted} no finite loss, but a finite loss with random weights: the weights are the cause; {_CALMER}"
    ids = always if batches.ids is None else batches.ids[always].tolist()
    named = "\n".join(_place_of(reader, example) for example in ids[:_NAMED])
    return (
        f"{counted} no finite loss, {len(always)} of them also with random weights; correct these records in the "
        f"source, and convert the data again:\n{named}"
    )


def _with_finite_weights(run: Run, step: int) -> tuple[Run, str]:
    """Return the run with finite weights (current, newest saved or initial), and a description of the weights."""
    if all(np.isfinite(variable).all() for variable in run.state.model.trainable_variables):
        return run, "the weights after the stretch of this step"
    for there in run.checkpoints.steps():
        if there <= step:
            try:
                run.restore(run.checkpoints.arrays(run.checkpoints.describe(there)))
            except (ArtifactError, StoreError) as error:
                run.reporter.warn(f"the checkpoint of step {there} is skipped: {error}")
                continue
            return run, f"the weights of step {there}, the newest finite ones that are saved"
    return run.with_fresh_state(), "the initial weights, as none are saved that are finite"


def _weights(check: BatchCheck, batch: Arrays) -> str:
    fault, (layer, largest) = check.fault(batch), check.largest_output(batch)
    first = f"{_first_wrong(fault)}\n" if fault else ""
    return (
        f"{first}the weights are the cause, or the device's precision; the largest output is {largest:.3g}, of layer "
        f"{layer}; {_CALMER}"
    )


def _of_all(losses: npt.NDArray[np.float32], whose: str) -> str:
    if not np.isfinite(losses).all():
        return f"with {whose}, no example of the batch has a finite loss"
    return f"with {whose}, the losses lie between {losses.min():.3g} and {losses.max():.3g}"


def _first_wrong(fault: FirstNonFinite) -> str:
    return f"the first fault is in {fault.where}, which is {fault.value}; {fault.before}"


def _counted(wrong: int, count: int) -> str:
    return f"{wrong:,} of {plural(count, 'example')} {'has' if wrong == 1 else 'have'}"


def _named(run: Run, records: npt.NDArray[np.int64], batch: Arrays, places: npt.NDArray[np.int64]) -> str:
    lines = [
        "".join(
            (
                _place_of(run.training_reader, int(records[place])),
                *(_field(name, column[place]) for name, column in batch.items()),
            )
        )
        for place in places[:_NAMED].tolist()
    ]
    return "\n".join([*lines, *(["…"] if len(places) > _NAMED else [])])


def _place_of(reader: SplitReader, example: int) -> str:
    file, record, offset = reader.locate(example)
    split = "training" if reader.info.name == TRAIN else reader.info.name
    return f"example {example} of the {split} split: record {record} of {file}, at byte {offset}"


def _field(name: str, value: Any) -> str:
    """Describe an example's field: the value of a number, or how many values of an array are not finite."""
    if not np.ndim(value):
        return f", {name} {value}"
    wrong = np.count_nonzero(~np.isfinite(value))
    return f", {name} with {wrong} of {np.size(value)} numbers not finite" if wrong else ""
