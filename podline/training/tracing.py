"""Explains a diverged loss: computes the loss of each example of the failing batch, and names the failing examples.

The device continues until the next stop, so the weights before the failing step are lost. The losses are computed with
the present weights or, if those are not finite, with the newest finite ones saved before the step, or the initial ones.
"""

# pyright: standard
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.base.arrays import Arrays
from podline.base.errors import ArtifactError, StoreError
from podline.base.plurals import plural
from podline.contract.kind import kind_of
from podline.contract.objective import Objective, penalties
from podline.data.reader import SplitReader
from podline.data.records import IMAGE
from podline.documents.manifest import TRAINING
from podline.input.pipeline import MASK, EvaluationInput
from podline.models.opened import OpenedModel
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
    gradient that is not finite; after an explosion, the examples with most of the loss. Or no example is the cause.
    """
    run, whose = _with_finite_weights(run, failure.step)
    phase = run.plan.phase(failure.step)
    batches = run.batches(phase)
    epoch, ids, arrays = batches.read(failure.step)
    batch, records = batches.augmented(epoch, ids, arrays), batches.order.records(ids)
    check = _BatchCheck(run.on_cpu(run.state.model, phase), run.objective_of(phase))
    losses = check.losses(batch)
    wrong = np.flatnonzero(~np.isfinite(losses))
    if 0 < len(wrong) < len(losses):
        one = {name: values[wrong[:1]] for name, values in batch.items()}
        return (
            f"with {whose}, {_counted(len(wrong), len(losses))} no finite loss:\n"
            f"{_named(run, records, batch, wrong)}\n{check.first_fault(one)}{_LOOK}"
        )
    ranked = np.argsort(losses)[::-1][: max(int(len(losses) * _FEW), 1)]
    held = np.cumsum(losses[ranked]) / losses.sum()
    if np.isfinite(failure.limit) and held[-1] > _MOST_OF_IT:
        few = ranked[: int(np.argmax(held > _MOST_OF_IT)) + 1]
        share = f"with {whose}, {held[len(few) - 1]:.0%} of the batch's loss comes from"
        return f"{share}:\n{_named(run, records, batch, few)}\n{_LOOK}"
    found = f"the losses lie between {losses.min():.3g} and {losses.max():.3g}"
    if len(wrong):
        found = "no example of the batch has a finite loss"
    return (
        f"no single example is the cause: with {whose}, {found}\n{check.first_fault(batch)}"
        f"the weights are the cause, or the device's precision; the largest output is {check.largest_output(batch)}; "
        f"{_CALMER}"
    )


def explain_evaluation(run: Run, objective: Objective, batches: EvaluationInput, reader: SplitReader) -> str:
    """Return as text why an evaluation's loss is not finite.

    The cause may be examples, of which the first are listed, the weights, or the arithmetic of the device.
    """
    with tf.device("CPU:0"):
        fresh = _BatchCheck(kind_of(run.recipe).model(run.recipe, run.manifest), objective)
    check = _BatchCheck(run.on_cpu(run.state.evaluated), objective)
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
    """Return the run with finite weights (present, newest saved up to ``step``, or initial), and their description."""
    if all(np.isfinite(variable).all() for variable in run.state.model.trainable_variables):
        return run, f"the weights after step {run.state.step}"
    for there in run.checkpoints.steps():
        if there <= step:
            try:
                run.restore(run.checkpoints.arrays(run.checkpoints.describe(there)))
            except (ArtifactError, StoreError) as error:
                run.reporter.warn(f"the checkpoint of step {there} is skipped: {error}")
                continue
            return run, f"the weights of step {there}, the newest finite ones that are saved"
    return run.with_fresh_state(), "the initial weights, because no saved weights are finite"


def _counted(wrong: int, count: int) -> str:
    return f"{wrong:,} of {plural(count, 'example')} {'has' if wrong == 1 else 'have'}"


def _named(run: Run, records: npt.NDArray[np.int64], batch: Arrays, places: npt.NDArray[np.int64]) -> str:
    lines = [
        _place_of(run.training_reader, int(records[place]))
        + "".join(_field(name, column[place]) for name, column in batch.items())
        for place in places[:_NAMED].tolist()
    ]
    return "\n".join([*lines, *(["…"] if len(places) > _NAMED else [])])


def _place_of(reader: SplitReader, example: int) -> str:
    file, record, offset = reader.locate(example)
    split = "training" if reader.info.name == TRAINING else reader.info.name
    return f"example {example} of the {split} split: record {record} of {file}, at byte {offset}"


def _field(name: str, value: Any) -> str:
    """Describe an example's field: the value of a number, or how many values of an array are not finite."""
    if not np.ndim(value):
        return f", {name} {value}"
    wrong = np.count_nonzero(~np.isfinite(value))
    return f", {name} with {wrong} of {np.size(value)} numbers not finite" if wrong else ""


class _BatchCheck:
    """Computes every layer's output, loss term and gradient of a model for one batch."""

    def __init__(self, model: keras.Model, objective: Objective) -> None:
        self._model, self._objective = model, objective
        self._opened = OpenedModel(model)

    def losses(self, batch: Arrays, *, training: bool = True) -> npt.NDArray[np.float32]:
        """Return the loss of each example in a training step or, with ``training=False``, an evaluation: shape (n,)."""
        with tf.device("CPU:0"):
            tensors = {name: tf.constant(values) for name, values in batch.items()}
            outputs = self._model(tensors[IMAGE], training=training)
            terms = self._objective.terms(self._objective.with_targets(tensors), outputs)
            return np.sum([np.asarray(term) for term in terms.values()], axis=0)

    def largest_output(self, batch: Arrays) -> str:
        """Return as text the largest magnitude in all layers' outputs for a batch, and the layer with this output."""
        with tf.device("CPU:0"):
            _, inner = self._opened(tf.constant(batch[IMAGE]), training=True)
        largest = [float(np.max(np.abs(output.value))) for output in inner]
        place = int(np.argmax(largest))
        return f"{largest[place]:.3g}, of layer {inner[place].name}"

    def first_fault(self, batch: Arrays) -> str:
        """Return a line about the first non-finite value of a training step on a batch; empty without such a value."""
        variables = self._model.trainable_variables
        with tf.device("CPU:0"):
            tensors = self._objective.with_targets({name: tf.constant(values) for name, values in batch.items()})
            with tf.GradientTape() as tape:
                outputs, inner = self._opened(tensors[IMAGE], training=True)
                terms = self._objective.terms(tensors, outputs)
                of_model = penalties(self._model)
                loss = tf.add_n([tf.reduce_sum(term) for term in terms.values()] + of_model)
            gradients = tape.gradient(loss, [variable.value for variable in variables])
        layers = {
            f"the output of {'layer' if output.is_of_layer else 'operation'} {output.name}": output.value
            for output in inner
        }
        of_terms = {f"the loss term {name}": term for name, term in terms.items()}
        of_penalties = {f"the model's penalty {number}": value for number, value in enumerate(of_model, start=1)}
        # In backward order: the gradients of the layers nearest to the loss come first.
        backward = {
            f"the gradient of {variable.path}": gradient
            for variable, gradient in zip(reversed(variables), reversed(gradients), strict=True)
            if gradient is not None
        }
        norm = {"the norm of all gradients": tf.linalg.global_norm(list(backward.values()))}
        return (
            _first(layers, "the outputs before it are finite")
            or _first(of_terms | of_penalties, "the output of every layer is finite")
            or _first(backward, "the loss and the gradients of the layers after it are finite")
            or _first(norm, "the loss and all gradients are finite")
        )


def _first(tensors: Mapping[str, Any], before: str) -> str:
    for where, tensor in tensors.items():
        values = np.ravel(tensor)
        wrong = values[~np.isfinite(values)]
        if wrong.size:
            return f"the first fault is in {where}, which is {wrong.flat[0]}; {before}\n"
    return ""
