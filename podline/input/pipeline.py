"""Batches for training and evaluation: ``tf.data`` on top of the memory-mapped reader.

The stages are: *read* → (*cache*) → *augment* → *batch* → *prefetch*.

*read* gathers the records of a batch from the mapped files into one array, which already is the batch. The ids are
known beforehand, since the order is a function; so no example is handled alone, and there is no shuffle buffer. The
*cache* is the operating system's: mapped pages stay in memory while there is space, shared by all processes. *augment*
changes each example by its own draws. *batch* turns the arrays into tensors of static shape, and *prefetch* keeps a few
of them ready. Pixels are always uint8.

A batch is a pure function of its number: any number of parallel calls gives the same batches, and a run that resumes at
step k requests batch k without replaying earlier ones.

Replicas share a batch: each has an equal part of it, in the order of the batch, and a host reads only the parts of its
own replicas. So the examples of step k are the same for any number of replicas and hosts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.base import entry_points
from podline.data.order import TrainingOrder
from podline.data.reader import SplitReader
from podline.data.records import IMAGE
from podline.documents.manifest import Manifest
from podline.input.chance import Chance
from podline.input.mixing import mixed
from podline.recipes.augmentations import Augmentation
from podline.recipes.settings import AugmentationSettings

Arrays = dict[str, npt.NDArray[Any]]
Spec = Mapping[str, tf.TensorSpec]

MASK = "mask of examples"
# One host with one replica, which gets whole batches.
ALONE = tf.distribute.InputContext()
_PREFETCHED = 4
# Two Python threads mostly alternate. A gather alone is fastest in one thread, and prefetching already runs it beside
# the training; augmentation is long enough to gain from a second thread.
_GATHERING_CALLS, _AUGMENTING_CALLS = 1, 2
# A single example uses a kernel for matrix times vector, which sums in another order than the kernel for matrices that
# all larger batches share. In pairs, outputs have the same bits for every batch size (measured on CPUs).
_SMALLEST_SHARE = 2


@dataclass(frozen=True)
class _Batches:
    """The batches of an input, by number; ``failures``: the Python errors since the latest data set was made."""

    reader: SplitReader
    manifest: Manifest
    fields: tuple[str, ...]
    failures: list[Exception] = field(default_factory=list, kw_only=True, compare=False, repr=False)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raise the error behind TensorFlow's, which only says that a Python function failed."""
        try:
            yield
        except tf.errors.OpError as error:
            if self.failures:
                raise self.failures[-1] from error
            raise

    def _dataset(
        self,
        part: Callable[[int, int, int], Arrays],
        spec: Spec,
        first: int,
        end: int,
        parallel_calls: int,
        context: tf.distribute.InputContext,
    ) -> tf.data.Dataset:
        """Return this host's replicas' parts of batches ``first`` to ``end - 1``, in order.

        ``part`` maps a batch's number, a replica's number and the number of replicas to arrays with the shapes in
        ``spec``. At most ``parallel_calls`` calls of it run at once.
        """
        self.failures.clear()  # drops errors of earlier data sets
        names, types = list(spec), [tensor.dtype for tensor in spec.values()]
        replicas = context.num_replicas_in_sync
        local = replicas // context.num_input_pipelines

        def in_python(index: npt.NDArray[np.int64]) -> list[npt.NDArray[Any]]:
            number, place = divmod(int(index), local)
            try:
                arrays = part(number, context.input_pipeline_id * local + place, replicas)
            except Exception as error:
                self.failures.append(error)
                raise
            return [arrays[name] for name in names]

        def in_tensorflow(index: tf.Tensor) -> dict[str, tf.Tensor]:
            # Not stateful: a batch depends only on its number, and TensorFlow may request several at once.
            tensors = tf.numpy_function(in_python, [index], types, stateful=False)
            return {
                name: tf.ensure_shape(tensor, spec[name].shape) for name, tensor in zip(names, tensors, strict=True)
            }

        indices = tf.data.Dataset.range(first * local, end * local)
        if context.num_input_pipelines > 1:
            # With an end, hosts would ask each other before each step whether all have a batch left; the end is never
            # reached.
            indices = indices.repeat()
        parts = indices.map(in_tensorflow, num_parallel_calls=parallel_calls, deterministic=True)
        # There is nothing to optimise; searching for it took up to a third of a pass over 50,000 images.
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        return parts.prefetch(_PREFETCHED * local).with_options(options)


@dataclass(frozen=True)
class TrainingInput(_Batches):
    """The batches of a training run.

    Attributes:
        fields: the fields that the model and the loss need, including ``image``.
        order: the examples of each batch.
        augmentation: random changes of images, or also of their people.
    """

    order: TrainingOrder
    augmentation: Augmentation

    def read(self, step: int, replica: int = 0, replicas: int = 1) -> tuple[int, npt.NDArray[np.int64], Arrays]:
        """Return epoch, ids (n,) and stored fields (n, …) of a batch, or of a replica's part of the batch."""
        epoch, ids = self.order.batch(step)
        share = len(ids) // replicas
        ids = ids[replica * share : (replica + 1) * share]
        return epoch, ids, self.reader.gather(self.order.records(ids), self.fields)

    @property
    def rows(self) -> int:
        """The number of rows of the table of features: views per image × records in the split."""
        return self.augmentation.views * self.order.split_count

    def places(self, epoch: int, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return each example's row in the table of features, int64 (n,): one row for each view of each record."""
        return epoch % self.augmentation.views * self.order.split_count + self.order.records(ids)

    def augmented(self, epoch: int, ids: npt.NDArray[np.int64], arrays: Arrays) -> Arrays:
        """Augment a batch; if examples are mixed, their partners are augmented in the same way."""
        settings, seed = self.augmentation, self.order.seed
        if settings == type(settings)():
            return arrays
        augment = entry_points.load(settings.applied_by)
        if settings.views:
            epoch, ids = epoch % settings.views, self.order.records(ids)
        made = augment(arrays, ids, settings, seed, epoch, self.manifest)
        if not (isinstance(settings, AugmentationSettings) and settings.mixes):
            return made
        partners = self.order.partners(epoch, ids)
        stored = self.reader.gather(self.order.records(partners), self.fields)
        others = augment(stored, partners, settings, seed, epoch, self.manifest)
        return mixed(made, others, settings, Chance(seed, epoch, ids))

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Height, width and channels of the images in a batch."""
        return self._blank()[IMAGE].shape[1:]

    def _blank(self) -> Arrays:
        """Return the augmented form of a blank example."""
        infos = [self.manifest.field(name) for name in self.fields]
        blank = {info.name: np.zeros((1, *info.shape), info.dtype) for info in infos}
        return self.augmented(0, np.zeros(1, np.int64), blank)

    def batch(self, step: int, replica: int = 0, replicas: int = 1) -> Arrays:
        """Return the augmented batch ``step`` (from 0), (batch_size, …) per field, or a replica's part of it."""
        return self.augmented(*self.read(step, replica, replicas))

    def dataset(self, first: int, end: int, context: tf.distribute.InputContext = ALONE) -> tf.data.Dataset:
        """Return batches ``first`` to ``end - 1``, all of one size, as dictionaries of host tensors of static shape.

        With several replicas, elements are the parts of this host's replicas, in turn; the number of replicas divides
        the batch size.
        """
        augments = self.augmentation != type(self.augmentation)()
        calls = _AUGMENTING_CALLS if augments else _GATHERING_CALLS
        share, blank = self.order.epochs.place(first).batch_size // context.num_replicas_in_sync, self._blank()
        spec = {name: tf.TensorSpec((share, *blank[name].shape[1:]), blank[name].dtype) for name in blank}
        return self._dataset(self.batch, spec, first, end, calls, context)


class FeatureInput(TrainingInput):
    """A training input whose batches have row numbers in a table of features, int64 (n,), instead of images."""

    @classmethod
    def of(cls, images: TrainingInput) -> FeatureInput:
        """Return the input for features, given the input for images."""
        fields = tuple(name for name in images.fields if name != IMAGE)
        return cls(images.reader, images.manifest, fields, order=images.order, augmentation=images.augmentation)

    def augmented(self, epoch: int, ids: npt.NDArray[np.int64], arrays: Arrays) -> Arrays:
        """Return a batch's fields; ``image`` has each example's row in the table of features.

        The other fields are augmented if an image's augmentation moves them, such as joints.
        """
        moved = super().augmented(epoch, ids, arrays) if self.augmentation.beside_images == "moved" else arrays
        return {**moved, IMAGE: self.places(epoch, ids)}


@dataclass(frozen=True)
class EvaluationInput(_Batches):
    """Records of a split, each once, in order; the last batch is padded, and a mask marks the examples.

    Attributes:
        batch_size: most examples in a batch, including padding; rounded up to a multiple of the replicas that share it,
            at least 2 each.
        ids: positions of the records, int64 (n,); all of them by default.
    """

    batch_size: int
    ids: npt.NDArray[np.int64] | None = None

    @property
    def count(self) -> int:
        """The number of examples."""
        return len(self.reader) if self.ids is None else len(self.ids)

    def batches(self, replicas: int = 1) -> int:
        """Return the number of batches."""
        return -(-self.count // (self._share(replicas) * replicas))

    def batch(self, number: int, replica: int = 0, replicas: int = 1) -> Arrays:
        """Return batch ``number`` (from 0), or a replica's part: fields and :data:`MASK`, float32, 0 for padding."""
        share = self._share(replicas)
        positions = (number * replicas + replica) * share + np.arange(share)
        padded = np.minimum(positions, self.count - 1)
        arrays = self.reader.gather(padded if self.ids is None else self.ids[padded], self.fields)
        return arrays | {MASK: (positions < self.count).astype(np.float32)}

    def dataset(self, context: tf.distribute.InputContext = ALONE) -> tf.data.Dataset:
        """Return all batches as dictionaries of host tensors of static shape; several replicas' parts come in turn."""
        replicas = context.num_replicas_in_sync
        share = self._share(replicas)
        infos = [self.manifest.field(name) for name in self.fields]
        spec = {info.name: tf.TensorSpec((share, *info.shape), info.dtype) for info in infos}
        spec[MASK] = tf.TensorSpec((share,), tf.float32)
        return self._dataset(self.batch, spec, 0, self.batches(replicas), _GATHERING_CALLS, context)

    def _share(self, replicas: int) -> int:
        """Return the number of examples per replica in a batch, at least 2.

        All batches have this size; it is chosen so that the last batch has the least padding.
        """
        most = -(-self.batch_size // replicas)
        number = -(-max(self.count, 1) // (most * replicas))
        even = -(-max(self.count, 1) // (number * replicas))
        return max(even, _SMALLEST_SHARE)
