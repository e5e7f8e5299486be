"""Runs models over splits: loads a finished run's model, and yields its answers with the records' fields."""

# pyright: standard
from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from podline.base.arrays import Array
from podline.base.progress import Reporter
from podline.data.records import IMAGE
from podline.input.pipeline import MASK, EvaluationInput
from podline.ledger.inventory.catalogue import train_result
from podline.store.contract import Store
from podline.training.export import load_model

_NEWS_SECONDS = 1.0
_TIMED = 9

Forward = Callable[[EvaluationInput], Iterator[tuple[Any, dict[str, Array]]]]
"""A function from an input to an iterator of (model outputs, the records' other fields), NumPy arrays, by batch."""


def answers_of(
    model: Callable[..., Any], strategy: tf.distribute.Strategy, part: Callable[[Any], Any] = lambda answer: answer
) -> Forward:
    """Return a model as a function from an input to the outputs of each batch; see :data:`Forward`.

    Args:
        model: a model that takes uint8 images (n, height, width, channels).
        strategy: the strategy of the model; each replica computes its part of a batch.
        part: selects the needed outputs: a tensor (n, …), or a tuple or dictionary of such tensors.
    """

    def answer(batch: dict[str, tf.Tensor]) -> Any:
        return part(model(batch[IMAGE], training=False)), {name: batch[name] for name in batch if name != IMAGE}

    answers = tf.function(lambda batch: strategy.run(answer, args=(batch,)), autograph=False)

    def over(batches: EvaluationInput) -> Iterator[tuple[Any, dict[str, Array]]]:
        parts = strategy.distribute_datasets_from_function(batches.dataset)
        for batch in itertools.islice(parts, batches.batches(strategy.num_replicas_in_sync)):
            found, fields = tf.nest.map_structure(
                lambda value: np.asarray(strategy.gather(value, axis=0)), answers(batch), expand_composites=False
            )
            examples = slice(int(np.sum(fields.pop(MASK))))
            yield tf.nest.map_structure(operator.itemgetter(examples), (found, fields))

    return over


def milliseconds_an_image(model: keras.Model, strategy: tf.distribute.Strategy) -> float:
    """Return the milliseconds that the model takes for a batch of one image: the least of several measurements."""
    image = tf.zeros((1, *model.input_shape[1:]), model.inputs[0].dtype)
    answer = tf.function(lambda: strategy.run(lambda: model(image, training=False)), autograph=False)

    def seconds() -> float:
        started = time.perf_counter()
        tf.nest.map_structure(np.asarray, strategy.experimental_local_results(answer()))
        return time.perf_counter() - started

    seconds()  # compiles
    return 1000 * min(seconds() for _ in range(_TIMED))


def finished_model(store: Store, run: str) -> keras.Model:
    """Load the model of a finished run.

    Raises:
        StoreError: there is no such finished run.
        ArtifactError: its weights have changed.
    """
    return load_model(store, f"runs/{run}", train_result(store, run).weights_sha256)


class News:
    """Reports the number of examples that models have answered, at most once a second, and at the end."""

    def __init__(self, reporter: Reporter, total: int) -> None:
        self._reporter, self._total = reporter, total
        self._done, self._told = 0, 0.0

    def done(self, examples: int) -> None:
        """Add to the number of answered examples."""
        self._done += examples
        if time.monotonic() - self._told > _NEWS_SECONDS or self._done == self._total:
            self._reporter.progress(self._done, self._total, "answers")
            self._told = time.monotonic()
