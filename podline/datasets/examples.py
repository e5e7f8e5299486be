"""Examples of a converted data set as NumPy arrays, by position or in a training's batches; needs no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from podline.arrays import Array
from podline.data.order import TrainingOrder
from podline.data.reader import open_split
from podline.documents.manifest import read_manifest
from podline.progress import Reporter
from podline.store.opening import open_store

Ids = npt.NDArray[np.int64]


class Examples:
    """The examples of a split, numbered 0 … len-1; a data set in PyTorch's sense as well.

    Each field is an array: ``image`` uint8 (n, height, width, channels), ``label`` int64 (n,), and what else the
    manifest lists. A copy in another process opens the store again.

    Attributes:
        manifest: the data set's.
        split: the split's name.
    """

    def __init__(self, root: str, folder: str, split: str, reporter: Reporter | None = None) -> None:
        """Open a split of the data set in a folder of a store.

        Raises:
            StoreError: there is no such data set, or it cannot be read.
            ArtifactError: no such split, or a file is not what the manifest says.
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
        """Return the names of the classes; a label is a place in them."""
        return self.manifest.class_names

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, ids: int | slice | Sequence[int] | Ids) -> dict[str, Array]:
        """Return the example at a position, or those of a slice or at some positions, in the order given.

        Raises:
            IndexError: there is no such position.
            ArtifactError: a record is damaged.
        """
        found = np.arange(*ids.indices(len(self))) if isinstance(ids, slice) else np.asarray(ids)
        if found.size and found.dtype.kind not in "iu":
            raise TypeError(f"got positions of type {found.dtype}, expected integers; see numpy.flatnonzero for a mask")
        places = found.astype(np.int64).reshape(-1)
        arrays = self._reader.gather(np.where(places < 0, places + len(self), places))
        return {name: values.reshape(found.shape + values.shape[1:])[()] for name, values in arrays.items()}

    def batches(self, batch_size: int, seed: int, *, epochs: int = 1, start: int = 0) -> Batches:
        """Return the batches of a training in Podline's order.

        Args:
            batch_size: examples in a batch; what is left over of an epoch is left out.
            seed: of the order; a recipe's ``seed`` gives the order of its training.
            epochs: passes over the split.
            start: the step of the first batch, to go on after a break.

        Raises:
            ValueError: a batch is empty or larger than the split, or the training has no such step.
        """
        order = TrainingOrder(len(self), batch_size, seed)
        steps = epochs * order.steps_per_epoch
        if not 0 <= start <= steps:
            raise ValueError(f"got start={start}, expected 0 to {steps}, the steps of {epochs} epochs")
        return Batches(self, order, range(start, steps))


class Batches(Sequence[dict[str, Array]]):
    """Batches of a training by number. Each is a function of its step: any process gets the same, in any order."""

    def __init__(self, examples: Examples, order: TrainingOrder, steps: range) -> None:
        """Take the batches of some steps of an order."""
        self._examples, self._order, self.steps = examples, order, steps

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, place: int) -> dict[str, Array]: ...
    @overload
    def __getitem__(self, place: slice) -> Batches: ...
    def __getitem__(self, place: int | slice) -> Any:
        """Return a batch, or the batches of a slice.

        Raises:
            IndexError: there is no such batch.
            ArtifactError: a record is damaged.
        """
        if isinstance(place, slice):
            return Batches(self._examples, self._order, self.steps[place])
        return self._examples[self.ids(place)]

    def ids(self, place: int) -> Ids:
        """Return the positions of a batch's examples in the split, (batch_size,)."""
        return self._order.batch(self.steps[place])[1]
