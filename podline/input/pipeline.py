"""Batches for training and evaluation: ``tf.data`` on top of the memory-mapped reader.

The stages, in this order: *read* → (*cache*) → *augment* → *batch* → *prefetch*.

*read* gathers the records of a batch from the mapped files straight into one array, which is already the batch: the
ids are known beforehand (order is a function), so no example is ever handled by itself, and there is no shuffle buffer
to fill. The *cache* is the operating system's: mapped pages stay in memory while there is room, shared by all
processes, and give way when there is none. *augment* changes the batch, each example by draws of its own. *batch* is
where the arrays become tensors of static shape, and *prefetch* keeps a few of them ready. Pixels are uint8 throughout.

A batch is a pure function of its number: any number of parallel calls gives the same batches, and a run that goes on
at step k asks for batch k, without replaying those before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.data.manifest import Manifest
from podline.data.order import TrainingOrder
from podline.input.augmentation import augment
from podline.input.buffers import Buffers
from podline.recipes.settings import AugmentationSettings

Arrays = dict[str, npt.NDArray[Any]]
Spec = Mapping[str, tf.TensorSpec]

MASK = "mask"
_PREFETCHED = 4
# Two threads of Python take turns more than they work side by side. A gather alone is quickest in one thread, and
# prefetching puts it beside the training as it is; augmentation is long enough for a second one to be of use.
_GATHERING_CALLS, _AUGMENTING_CALLS = 1, 2


class Reader(Protocol):
    """What batches are read from: :class:`podline.data.reader.SplitReader` of one split."""

    def __len__(self) -> int:
        """How many records there are."""
        ...

    def gather(self, indices: npt.NDArray[np.int64], fields: tuple[str, ...], out: Arrays) -> Arrays:
        """The fields of some records, in the order of the indices, written into arrays that are given."""
        ...


@dataclass(frozen=True)
class _Batches:
    """Batches by number; ``failures`` holds what went wrong in Python while TensorFlow asked for one."""

    reader: Reader
    manifest: Manifest
    fields: tuple[str, ...]
    failures: list[Exception] = field(default_factory=list, kw_only=True, compare=False, repr=False)
    buffers: Buffers = field(default_factory=Buffers, kw_only=True, compare=False, repr=False)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raises the error behind TensorFlow's own, which says only that some Python function failed."""
        try:
            yield
        except tf.errors.OpError as error:
            if self.failures:
                raise self.failures[0] from error
            raise

    def _gather(self, ids: npt.NDArray[np.int64]) -> Arrays:
        infos = [self.manifest.field(name) for name in self.fields]
        out = {info.name: self.buffers.empty((len(ids), *info.shape), np.dtype(info.dtype)) for info in infos}
        return self.reader.gather(ids, self.fields, out)

    def _spec(self, batch_size: int) -> dict[str, tf.TensorSpec]:
        infos = [self.manifest.field(name) for name in self.fields]
        return {info.name: tf.TensorSpec((batch_size, *info.shape), info.dtype) for info in infos}

    def _dataset(
        self, batch: Callable[[int], Arrays], spec: Spec, first: int, end: int, parallel_calls: int
    ) -> tf.data.Dataset:
        names, types = list(spec), [tensor.dtype for tensor in spec.values()]

        def in_python(number: npt.NDArray[np.int64]) -> list[npt.NDArray[Any]]:
            try:
                arrays = batch(int(number))
            except Exception as error:
                self.failures.append(error)
                raise
            return [arrays[name] for name in names]

        def in_tensorflow(number: tf.Tensor) -> dict[str, tf.Tensor]:
            # Not stateful: a batch depends on its number alone, and TensorFlow may ask for several at once.
            tensors = tf.numpy_function(in_python, [number], types, stateful=False)
            return {
                name: tf.ensure_shape(tensor, spec[name].shape) for name, tensor in zip(names, tensors, strict=True)
            }

        numbers = tf.data.Dataset.range(first, end)
        batches = numbers.map(in_tensorflow, num_parallel_calls=parallel_calls, deterministic=True)
        # Nothing is left to optimise or to tune, and looking for it took up to a third of a pass over 50,000 images.
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        return batches.prefetch(_PREFETCHED).with_options(options)


@dataclass(frozen=True)
class TrainingInput(_Batches):
    """The batches of a training run.

    Attributes:
        reader: the training split.
        manifest: of the data set.
        fields: the fields that the model and the loss need; ``image`` is what is augmented.
        order: which examples make which batch.
        augmentation: what chance does to them.
    """

    order: TrainingOrder
    augmentation: AugmentationSettings

    def read(self, step: int) -> tuple[int, npt.NDArray[np.int64], Arrays]:
        """The epoch, the ids and the records of a batch, as they are stored."""
        epoch, ids = self.order.batch(step)
        return epoch, ids, self._gather(ids)

    def augmented(self, epoch: int, ids: npt.NDArray[np.int64], arrays: Arrays) -> Arrays:
        """What chance makes of a batch; a hole is filled with the training split's mean colour."""
        if not self._changes:
            return arrays
        mean = self.manifest.split("train").mean
        fill = np.rint(mean).astype(np.uint8)
        return arrays | {"image": augment(arrays["image"], ids, self.augmentation, self.order.seed, epoch, fill)}

    def batch(self, step: int) -> Arrays:
        """Batch number ``step`` (from 0) of the run, shape (batch_size, …) each field."""
        return self.augmented(*self.read(step))

    def dataset(self, first: int, end: int, parallel_calls: int | None = None) -> tf.data.Dataset:
        """Batches ``first`` to ``end - 1`` as dictionaries of host tensors of static shape.

        Args:
            first: the first batch.
            end: the first batch that is not wanted any more.
            parallel_calls: how many batches may be made at once; it changes nothing but the speed.
        """
        return self.dataset_of(self.batch, first, end, parallel_calls)

    def dataset_of(
        self, batch: Callable[[int], Arrays], first: int, end: int, parallel_calls: int | None = None
    ) -> tf.data.Dataset:
        """Like :meth:`dataset`, of the arrays that another function gives for a batch's number: to measure parts."""
        calls = parallel_calls or (_AUGMENTING_CALLS if self._changes else _GATHERING_CALLS)
        return self._dataset(batch, self._spec(self.order.batch_size), first, end, calls)

    @property
    def _changes(self) -> bool:
        return self.augmentation != AugmentationSettings()


@dataclass(frozen=True)
class EvaluationInput(_Batches):
    """Records of a split, each once, in order; the last batch is padded, and a mask tells the padding from examples.

    Attributes:
        reader: the split.
        manifest: of the data set.
        fields: the fields that are needed.
        batch_size: examples in a batch, padding included.
        ids: which records to take, int64 (n,); all of them by default.
    """

    batch_size: int
    ids: npt.NDArray[np.int64] | None = None

    @property
    def count(self) -> int:
        """How many examples there are."""
        return len(self.reader) if self.ids is None else len(self.ids)

    @property
    def batches(self) -> int:
        """How many batches they make."""
        return -(-self.count // self.batch_size)

    def batch(self, number: int) -> Arrays:
        """Batch ``number`` (from 0): the fields, and ``mask``, float32: 1 for an example, 0 for padding."""
        positions = np.arange(number * self.batch_size, (number + 1) * self.batch_size)
        padded = np.minimum(positions, self.count - 1)
        arrays = self._gather(padded if self.ids is None else self.ids[padded])
        return arrays | {MASK: (positions < self.count).astype(np.float32)}

    def dataset(self) -> tf.data.Dataset:
        """All batches as dictionaries of host tensors of static shape."""
        spec = self._spec(self.batch_size) | {MASK: tf.TensorSpec((self.batch_size,), tf.float32)}
        return self._dataset(self.batch, spec, 0, self.batches, _GATHERING_CALLS)
