"""Stores a model's answer to each example of a split, as arrays in a file next to ``evaluation.json``."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Array
from podline.base.errors import ArtifactError, StoreError
from podline.documents.completion import read_artifact
from podline.store.contract import Store

Bools, Floats = npt.NDArray[np.bool_], npt.NDArray[np.float64]


@dataclass(frozen=True)
class PerExample:
    """Arrays with one entry per example, in the order of the split.

    Attributes:
        file: name of the file.
        holds: noun for the content of the file, for messages.
        decides: name of the array with the answers.
        has_thresholds: whether answers depend on thresholds, which are chosen on a validation split or examples held
            out of the training, or else on training examples.
        labels: the true labels of each example, (n, …).
    """

    file: ClassVar[str]
    holds: ClassVar[str]
    decides: ClassVar[str]

    labels: Array

    has_thresholds: ClassVar[bool] = False

    @property
    def right(self) -> Bools | None:
        """Return a mask of the right answers, (n,); None for answers that are not simply right or wrong."""
        return None

    def surest_mistakes(self) -> npt.NDArray[np.int64]:
        """Return the indices of the wrong answers, the most confident first, (m,); none by default."""
        return np.empty(0, np.int64)

    def thresholds(self) -> Floats:
        """Return the best threshold of each class for these examples, (classes,); empty without thresholds."""
        return np.empty(0)

    def at_thresholds(self, thresholds: Floats) -> Self:  # noqa: ARG002 (without thresholds)
        """Return the answers with these thresholds, (classes,)."""
        return self

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the examples of all parts."""
        return cls(**{name: np.concatenate([getattr(each, name) for each in parts]) for name in _names(cls)})

    @classmethod
    def read(cls, store: Store, folder: str) -> Self:
        """Read the file of an evaluation from its folder.

        Raises:
            StoreError: the folder has no such file (the run is not evaluated, or is of another kind of task than this
                class), or the file cannot be read.
            ArtifactError: the file is damaged, or has other arrays.
        """
        name = f"{folder}/{cls.file}"
        if not store.exists(name):
            raise StoreError(f"{store.where(name)} does not exist; `podline evaluate` writes it")
        try:
            with np.load(io.BytesIO(read_artifact(store, folder, "evaluate", name)), allow_pickle=False) as arrays:
                found = cls(**{each: arrays[each] for each in _names(cls)})
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ArtifactError(
                f"{store.where(name)} holds no {cls.holds} ({error}); evaluate the run again"
            ) from error
        if len({len(getattr(found, each)) for each in _names(cls)}) != 1:
            raise ArtifactError(f"{store.where(name)} has {cls.holds} of unequal lengths; evaluate the run again")
        return found

    def at(self, places: npt.NDArray[np.int64]) -> Self:
        """Return the examples at some indices of the split, (n,), in the order of the indices."""
        return type(self)(**{name: getattr(self, name)[places] for name in _names(type(self))})

    @property
    def decided(self) -> Array:
        """Return the answers, (n, …)."""
        return getattr(self, self.decides)

    def to_bytes(self) -> bytes:
        """Encode the arrays as an .npz file; equal values give equal bytes."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _names(type(self))}
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()


def _names(cls: type[PerExample]) -> list[str]:
    return [field.name for field in fields(cls)]
