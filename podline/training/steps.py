"""The inner loop on the device: many steps in one call, under a strategy.

``keras.Model.fit`` does not work under every strategy. A ``tf.function`` with the loop, Keras layers and a Keras
optimizer does. The number of steps is a tensor, so one trace serves for any number.

The host runs one step ahead of a single accelerator. While the device computes step n, the host prepares and copies the
batch of step n + 1 and launches that step.
"""

# pyright: standard
from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.framework.config import is_op_determinism_enabled

from podline.base.arrays import Array, Tensor
from podline.base.errors import SettingsError
from podline.contract.objective import Batch, Objective, penalties
from podline.data.records import IMAGE
from podline.input.pipeline import MASK
from podline.models.messages import cause
from podline.stages.specs import TrainSpec
from podline.training.frozen_features import FrozenFeatures
from podline.training.loop import StepsDone
from podline.training.resumable import require_resumable, variables_explained
from podline.training.state import TrainingState

Series = dict[str, tf.TensorArray]

_NORMS = "gradient norms"


def provided(objective: Objective) -> tuple[str, ...]:
    """Return the names of the quantities that each step reports.

    These are ``loss`` (of the batch, with the model's penalties), ``gradient_norm`` (of all gradients together) and the
    objective's measures. Each step also reports ``gradient_norm/BLOCK`` for each block (:func:`block_of`).
    """
    return ("loss", TOTAL, *objective.measured)


class TrainingSteps:
    """Training steps over an iterator of batches.

    Attributes:
        tracing_seconds: seconds spent tracing the step.
        traces: number of tracings.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        state: TrainingState,
        rate: Callable[[int], float],
        objective: Objective,
        batches: Iterable[Any],
        batch_size: int,
        network: keras.Model | FrozenFeatures | None = None,
        *,
        jit: bool = False,
        accumulate: int = 1,
    ) -> None:
        """Trace the step into a graph.

        Args:
            strategy: the strategy to run under.
            state: the state to train.
            rate: the learning rate of a step, counted from 0 in the run.
            objective: the loss to minimise and the measures to count.
            batches: the batches to train on, from ``strategy.distribute_datasets_from_function``: each replica's part
                of each batch.
            batch_size: examples in a step, over all replicas.
            network: the state's model, rebuilt for batches with another image shape or with features of frozen layers;
                by default the model itself.
            jit: whether XLA compiles the step.
            accumulate: number of equal parts of a replica's batch, computed one after another.

        Raises:
            SettingsError: ``jit`` is set with several replicas, or a resumed run would not repeat the step; see
                :mod:`podline.training.resumable`.
        """
        if jit and strategy.num_replicas_in_sync > 1:
            raise SettingsError(
                f"jit=true vs {strategy.num_replicas_in_sync} replicas: XLA compiles the step of one device; leave jit "
                "out, or train on one device"
            )
        self._step = _compiled(self._replica_step, jit=jit)
        self._strategy, self._state, self._rate = strategy, state, rate
        self._network: Any = network or state.model
        self._objective, self._batch_size, self._accumulate = objective, batch_size, accumulate
        self._norms = GradientNorms(state.model.trainable_variables)
        # TensorFlow refuses its own clock in deterministic mode; Python's clock costs some 50 µs more.
        self._now = _python_clock if is_op_determinism_enabled() else tf.timestamp
        self._iterator: Any = iter(batches)
        self.traces = 0
        self._many = tf.function(self._take, autograph=False)
        before = time.perf_counter()
        floats = tf.TensorSpec((None,), tf.float32)
        with variables_explained(state.model):
            traced = self._many.get_concrete_function(self._iterator, floats, floats)
        known = network.tables if isinstance(network, FrozenFeatures) else []
        require_resumable(traced.graph, state, strategy, known)
        self.tracing_seconds = time.perf_counter() - before

    def rewind(self, batches: Iterable[Any]) -> None:
        """Continue with other batches of the same shapes and strategy, with the same traced graph."""
        self._iterator: Any = iter(batches)

    def advance(self, count: int) -> StepsDone:
        """Take ``count`` steps, with learning rates that Python computes and rounds to float32."""
        before, state = time.perf_counter(), self._state
        rates = [self._rate(step) for step in range(state.step, state.step + count)]
        shares = [
            state.average_share(seen) for seen in range(state.total_steps_done + 1, state.total_steps_done + 1 + count)
        ]
        series, waiting = self._many(self._iterator, tf.constant(rates, tf.float32), tf.constant(shares, tf.float32))
        state.total_steps_done += count
        arrays = {name: values.numpy() for name, values in series.items()}
        arrays |= self._norms.series(arrays.pop(_NORMS))
        return StepsDone(arrays, seconds=time.perf_counter() - before, waiting=float(waiting))

    def _take(self, iterator: Any, rates: Any, shares: Any) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Take a step per rate; return each quantity's value at each step, and the seconds spent waiting for input."""
        self.traces += 1  # Python runs this once for each graph
        count = tf.shape(rates)[0]

        def body(index: tf.Tensor, last: tf.Tensor, waiting: tf.Tensor, series: Series) -> tuple[Tensor, ...]:
            batch, idle = self._next_timed(iterator, last)
            outputs = self._one(batch, rates[index], shares[index])
            written = {name: array.write(index, outputs[name]) for name, array in series.items()}
            return index + 1, outputs["loss"], waiting + idle, written

        shapes = {"loss": (), **dict.fromkeys(self._objective.measured, ()), _NORMS: self._norms.shape}
        _, _, waiting, series = tf.while_loop(
            lambda index, *_: index < count,
            body,
            [
                tf.constant(0),
                tf.constant(0.0),
                tf.constant(0.0, tf.float64),
                {name: tf.TensorArray(tf.float32, count, element_shape=shape) for name, shape in shapes.items()},
            ],
            # An iteration may begin when the previous one has updated all variables, before its loss is known. Sums
            # over replicas must not overlap, so with several replicas iterations do not overlap.
            parallel_iterations=2 if self._strategy.num_replicas_in_sync == 1 else 1,
        )
        return {name: array.stack() for name, array in series.items()}, waiting

    def _one(self, batch: Batch, rate: Tensor, share: Tensor) -> dict[str, tf.Tensor]:
        """Take one step over all replicas; return the float32 value of each quantity."""
        self._state.optimizer.learning_rate = rate
        outputs = self._strategy.run(self._step, args=(batch, share))
        return {
            name: self._strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None) for name, value in outputs.items()
        }

    def _next_timed(self, iterator: Any, last: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Return the next batch, and the seconds that the device was idle before the batch arrived.

        The idle time begins when ``last``, the loss of the previous step, is computed. The request for the batch does
        not wait for that loss. The next iteration begins after both clock readings, so requests are at most one step
        ahead.
        """
        with tf.device("CPU:0"):
            with tf.control_dependencies([last]):
                ended = self._now()
            batch = next(iterator)
            with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
                there = self._now()
            idle = tf.maximum(there - ended, 0.0)
        with tf.control_dependencies([there]):
            return tf.nest.map_structure(_in_place, batch, expand_composites=True), idle

    def _replica_step(self, batch: Batch, share: Tensor) -> dict[str, tf.Tensor]:
        """Take one step of one replica; return terms whose sums over replicas are loss, measures and gradient norms."""
        model, replicas = self._state.model, self._strategy.num_replicas_in_sync
        gradients, outputs = self._gradients(batch)
        # Summed before the optimizer, so that clip_norm bounds the norm of the whole batch's gradient.
        gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        self._state.optimizer.apply(gradients, model.trainable_variables)
        self._state.follow(share)
        # All replicas have the same norms, and the caller sums over replicas: each returns its share.
        return {**outputs, _NORMS: self._norms.of(gradients) / replicas}

    def _gradients(self, batch: Batch) -> tuple[list[Tensor], dict[str, tf.Tensor]]:
        """Return a replica's share of the gradients, the loss and the measures: sums over the parts of its batch."""
        parts = self._accumulate
        size = self._batch_size // (self._strategy.num_replicas_in_sync * parts)
        gradients, outputs = self._of_part({name: values[:size] for name, values in batch.items()})
        for part in range(1, parts):
            # Each part waits for the previous part, so that the outputs of only one part are in memory.
            with tf.control_dependencies(gradients):
                place = tf.constant(part * size)
                examples = {name: values[place : place + size] for name, values in batch.items()}
                examples = {
                    name: tf.ensure_shape(values, (size, *values.shape[1:])) for name, values in examples.items()
                }
            more, other = self._of_part(examples)
            gradients = [first + second for first, second in zip(gradients, more, strict=True)]
            outputs = {name: value + other[name] for name, value in outputs.items()}
        return gradients, outputs

    def _of_part(self, batch: Batch) -> tuple[list[Tensor], dict[str, tf.Tensor]]:
        model, replicas = self._state.model, self._strategy.num_replicas_in_sync
        batch = self._objective.with_targets(batch)
        with tf.GradientTape() as tape:
            outputs = self._network(batch[IMAGE], training=True)
            terms = self._objective.terms(batch, outputs)
            loss = tf.add_n([tf.reduce_sum(term) for term in terms.values()]) / self._batch_size
            loss += tf.add_n([tf.zeros(()), *penalties(self._network)]) / (replicas * self._accumulate)
        # A variable that the loss does not depend on has a gradient of zero.
        gradients = tape.gradient(
            loss,
            [variable.value for variable in model.trainable_variables],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        measures = self._objective.measures(batch, outputs)
        return gradients, {"loss": loss, **{name: tf.reduce_sum(value) for name, value in measures.items()}}


def _in_place(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor on the device that holds the tensor."""
    with tf.device(tensor.device):
        return tf.identity(tensor)


def _compiled(step: Callable[..., Any], *, jit: bool) -> Callable[..., Any]:
    return tf.function(step, autograph=False, jit_compile=True) if jit else step


def _python_clock() -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(time.perf_counter, [], tf.float64), ())


class Score(NamedTuple):
    """The result of an evaluation.

    Attributes:
        loss: mean over the examples, without the model's penalties.
        sums: the sum of each measure of the objective over the examples.
        examples: number of examples.
        outputs: the model's outputs for the examples, (n, …); empty if the steps keep no field.
        targets: the examples' values of the kept field, (n, …); empty if the steps keep no field.
    """

    loss: float
    sums: dict[str, float]
    examples: int
    outputs: Array
    targets: Array


class ScoringSteps:
    """Scores a model on padded batches; padding is ignored."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
        objective: Objective,
        *,
        jit: bool = False,
        kept: str = "",
    ) -> None:
        """Prepare the scoring step; the first call of :meth:`score` traces it.

        Args:
            strategy: the strategy of the model.
            model: the model to score.
            objective: the loss, and the measures to count.
            jit: whether XLA compiles the step.
            kept: the field of the examples that a score keeps, together with the model's outputs; empty for none.
        """
        self._strategy, self._model, self._objective, self._kept = strategy, model, objective, kept
        self._step = _compiled(self._replica_step, jit=jit)
        self._one = tf.function(self._reduced, autograph=False)

    def score(self, batches: Iterable[Any], count: int, news: Callable[[int], bool]) -> Score | None:
        """Score all batches.

        Args:
            batches: from ``strategy.distribute_datasets_from_function``: each replica's part of each batch, of the
                objective's fields and ``mask`` (float32, 1 for an example and 0 for padding).
            count: number of batches.
            news: is called with the number of batches done; scoring stops if ``news`` returns False.

        Returns:
            The score, or None if ``news`` stopped the scoring.
        """
        sums, kept = np.zeros(2 + len(self._objective.measured)), list[list[Array]]()
        for number, batch in enumerate(itertools.islice(batches, count), start=1):
            values, per_example = self._one(batch)
            sums += [float(value) for value in values]
            kept.append([np.asarray(each) for each in per_example])
            if not news(number):
                return None
        examples, loss, *measures = sums.tolist()
        named = dict(zip(self._objective.measured, measures, strict=True))
        outputs, targets = np.empty(0), np.empty(0)
        if self._kept:
            mask, outputs, targets = (np.concatenate(parts) for parts in zip(*kept, strict=True))
            outputs, targets = outputs[mask > 0], targets[mask > 0]
        return Score(loss / examples, named, round(examples), outputs, targets)

    def _reduced(self, batch: Batch) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Run the step on all replicas; return sums over the batch, and values per example in the batch's order."""
        sums, kept = self._strategy.run(self._step, args=(batch,))
        added = [self._strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None) for value in sums]
        return added, [self._strategy.gather(value, axis=0) for value in kept]

    def _replica_step(self, batch: Batch) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        mask, outputs = batch[MASK], self._model(batch[IMAGE], training=False)
        kept = [mask, outputs, batch[self._kept]] if self._kept else []
        batch = self._objective.with_targets(batch)
        losses = tf.add_n(list(self._objective.terms(batch, outputs).values()))
        measures = self._objective.measures(batch, outputs)
        summed = (losses, *(measures[name] for name in self._objective.measured))
        return [tf.reduce_sum(mask), *(tf.reduce_sum(values * mask) for values in summed)], kept


TOTAL = "gradient_norm"


def block_of(variable: keras.Variable) -> str:
    """Return a variable's block, its path up to the first ``_`` or ``/``: ``stage1`` for ``stage1_conv/kernel``."""
    return variable.path.split("/")[0].split("_")[0]


class GradientNorms:
    """Computes the Euclidean norms of the gradients of some variables.

    Attributes:
        blocks: the blocks of the variables, in the order of the network.
    """

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        self.blocks = tuple(dict.fromkeys(block_of(variable) for variable in variables))
        self._members = [
            [place for place, variable in enumerate(variables) if block_of(variable) == block] for block in self.blocks
        ]

    @property
    def shape(self) -> tuple[int]:
        """Return the shape of the result of :meth:`of`: (1 + blocks,)."""
        return (1 + len(self.blocks),)

    def of(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the norm of all gradients together and of each block: float32, of :attr:`shape`.

        Args:
            gradients: the gradient of each variable, summed over the replicas and not clipped.
        """
        squares = [tf.nn.l2_loss(gradient) for gradient in gradients]
        sums = tf.stack([tf.add_n([squares[place] for place in places]) for places in self._members])
        return tf.sqrt(2.0 * tf.concat([tf.reduce_sum(sums, keepdims=True), sums], 0))

    def series(self, norms: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
        """Split norms (steps, 1 + blocks) by name: ``gradient_norm`` and ``gradient_norm/BLOCK``, each (steps,)."""
        names = [TOTAL, *(f"{TOTAL}/{block}" for block in self.blocks)]
        return dict(zip(names, norms.T, strict=True))


@contextlib.contextmanager
def permanent(spec: TrainSpec) -> Iterator[None]:
    """Convert a failure of the first step to a permanent error, because every retry would fail as well.

    Errors of unavailable devices, such as ``UnavailableError``, stay unchanged.

    Raises:
        SettingsError: the body does not fit into memory, or raised an error of the model, the loss or a hook.
    """
    try:
        yield
    except (tf.errors.ResourceExhaustedError, MemoryError) as error:
        raise SettingsError(
            f"a batch of {spec.recipe.batch_size} does not fit into memory ({cause(error)}); choose a smaller "
            "batch_size, or a narrower model"
        ) from error
    except (tf.errors.InvalidArgumentError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise SettingsError(f"the first step of {spec.run} fails: {type(error).__name__}: {cause(error)}") from error
