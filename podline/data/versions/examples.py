"""Read examples of a converted data set as NumPy arrays, by position or in training batches, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Array, Ids
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.data.order import TrainingOrder
from podline.data.reader import open_split
from podline.data.versions.record_names import RecordNames
from podline.documents.manifest import read_manifest
from podline.store.opening import open_store


class Examples:
    """The examples of a split, numbered 0 … len-1; can be used as a map-style data set of PyTorch.

    Each field of the manifest is an array: ``image`` uint8 (n, height, width, channels), for classes ``label`` int64
    (n,). When an instance is pickled into another process, it opens the store there.
    """

    def __init__(self, root: str, folder: str, split: str, reporter: Reporter | None = None) -> None:
        """Open a split of the data set in a folder of a store.

        Raises:
            StoreError: the data set does not exist, or cannot be read.
            ArtifactError: the split does not exist, or a file differs from the manifest.
        """
        store = open_store(root)
        self.manifest, self.split = read_manifest(store, folder), split
        self._reader = open_split(store, folder, self.manifest, split, reporter)
        self._opened_by = root, folder, split

    def __reduce__(self) -> tuple[type[Examples], tuple[str, str, str]]:
        return Examples, self._opened_by

    def __repr__(self) -> str:
        return f"<{len(self)} {self.split} examples of {self.manifest.dataset}/{self.manifest.fingerprint}>"

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes or labels by number; empty for kinds without classes."""
        return self.manifest.class_names

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, ids: int | slice | Sequence[int] | Ids) -> dict[str, Array]:
        """Return one example for an integer, or a batch in the given order for a slice or several indices.

        Raises:
            TypeError: the indices are not integers.
            IndexError: a position is out of range.
            ArtifactError: a record is damaged.
        """
        places = self._places(ids)
        arrays = self._reader.gather(places.reshape(-1))
        return {name: values.reshape(places.shape + values.shape[1:])[()] for name, values in arrays.items()}

    def _places(self, ids: int | slice | Sequence[int] | Ids) -> Ids:
        """Return the position of each index, of the shape of ``ids``; negative indices count from the end."""
        found = np.arange(*ids.indices(len(self))) if isinstance(ids, slice) else np.asarray(ids)
        if found.size and found.dtype.kind not in "iu":
            raise TypeError(
                f"indices have dtype {found.dtype}, expected integers; convert a boolean mask with numpy.flatnonzero"
            )
        places = np.where(found < 0, found + len(self), found).astype(np.int64)
        if places.size and not 0 <= places.min() <= places.max() < len(self):
            raise IndexError(f"got indices from {found.min()} to {found.max()} of {plural(len(self), 'example')}")
        return places

    def names(self, ids: int | slice | Sequence[int] | Ids) -> Any:
        """Return the names of examples in their source, such as ``cat/1.png``; indices as in :meth:`__getitem__`.

        A name is empty if the data set was converted by Podline 1.0.

        Raises:
            TypeError: the indices are not integers.
            IndexError: a position is out of range.
            ArtifactError: the file of names is damaged.
        """
        return self._names[self._places(ids)]

    @cached_property
    def _names(self) -> npt.NDArray[np.str_]:
        facts = RecordNames(open_store(self._opened_by[0]), self.manifest).facts(self.split, np.arange(len(self)))
        return np.array(facts.names, str)

    def batches(self, batch_size: int, seed: int, *, epochs: int = 1, start: int = 0) -> Batches:
        """Return the batches of a training in Podline's order.

        Args:
            batch_size: number of examples per batch; the incomplete last batch of an epoch is dropped.
            seed: seed of the order. A recipe's ``seed`` gives the order of its training, unless the training holds out
                examples, balances classes, changes the batch size or continues an earlier training.
            epochs: number of passes over the split.
            start: number of the first batch to return, to resume.

        Raises:
            ValueError: a batch is empty or larger than the split, or ``start`` is out of range.
        """
        order = TrainingOrder(len(self), batch_size, seed)
        steps = epochs * order.steps_per_epoch
        if not 0 <= start <= steps:
            raise ValueError(
                f"got start={start}, expected 0 to {steps}, the number of batches in {plural(epochs, 'epoch')}"
            )
        return Batches(self, order, range(start, steps))


class Batches(Sequence[dict[str, Array]]):
    """A sequence of training batches; each depends only on its step number, so all processes get equal batches."""

    def __init__(self, examples: Examples, order: TrainingOrder, steps: range) -> None:
        """Select the batches of ``steps`` from ``order``."""
        self._examples, self._order, self.steps = examples, order, steps

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, place: int) -> dict[str, Array]: ...
    @overload
    def __getitem__(self, place: slice) -> Batches: ...
    def __getitem__(self, place: int | slice) -> Any:
        """Return one batch, or for a slice the selected batches as ``Batches``.

        Raises:
            IndexError: the number is out of range.
            ArtifactError: a record is damaged.
        """
        if isinstance(place, slice):
            return Batches(self._examples, self._order, self.steps[place])
        return self._examples[self.ids(place)]

    def ids(self, place: int) -> Ids:
        """Return the positions in the split of a batch's examples, int64 (batch_size,)."""
        return self._order.batch(self.steps[place])[1]
