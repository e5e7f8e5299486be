"""A classifier's answer to every example of a split; two models are compared by it."""

from __future__ import annotations

import io
import zipfile
from dataclasses import astuple, dataclass, fields

import numpy as np
import numpy.typing as npt

from podline.documents.completion import read_artifact
from podline.errors import ArtifactError, StoreError
from podline.store.contract import Store

GUESSES = "guesses.npz"
"""The file, beside ``evaluation.json``."""


@dataclass(frozen=True)
class Guesses:
    """One entry an example, in the order of the split, each of shape (n,).

    Attributes:
        labels: the true classes, int64.
        predictions: the classes that the model gave them, int64.
        confidences: the probabilities that it gave its predictions, float64.
        label_probabilities: the probabilities that it gave the labels, float64.
    """

    labels: npt.NDArray[np.int64]
    predictions: npt.NDArray[np.int64]
    confidences: npt.NDArray[np.float64]
    label_probabilities: npt.NDArray[np.float64]

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Which examples the model got right, (n,)."""
        return self.labels == self.predictions

    def at(self, places: npt.NDArray[np.int64]) -> Guesses:
        """Those of the examples at some places of the split, in the order given, (n,)."""
        return Guesses(**{field.name: getattr(self, field.name)[places] for field in fields(Guesses)})

    def to_bytes(self) -> bytes:
        """A file that depends on the values alone."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{field.name: getattr(self, field.name) for field in fields(self)})
        return buffer.getvalue()


def read_guesses(store: Store, folder: str) -> Guesses:
    """The guesses in an evaluation's folder.

    Raises:
        StoreError: there are none: the evaluation is older than they are, or not of a classifier.
        ArtifactError: the file is damaged.
    """
    name = f"{folder}/{GUESSES}"
    if not store.exists(name):
        raise StoreError(f"{store.where(name)} is not there; `podline evaluate` writes it")
    try:
        with np.load(io.BytesIO(read_artifact(store, folder, "evaluate", name)), allow_pickle=False) as arrays:
            found = Guesses(**{field.name: arrays[field.name] for field in fields(Guesses)})
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{store.where(name)} holds no guesses ({error}); evaluate the run again") from error
    if len({values.shape for values in astuple(found)}) != 1:
        raise ArtifactError(f"{store.where(name)} holds guesses of unequal length; evaluate the run again")
    return found
