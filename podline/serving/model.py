"""Loads a champion's SavedModel into memory and warms it up."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.data.pictures import Form
from podline.documents.champions import HISTORY, Crowned
from podline.documents.manifest import read_manifest
from podline.inventory.catalogue import training_of
from podline.kinds.table import kind_of
from podline.progress import silent
from podline.serving.layout import copy_saved_model, require_champion
from podline.store.contract import Store

Images = npt.NDArray[np.uint8]

_WARM_UP = (1, 2)  # TensorFlow traces the second batch size for any further one
_BATCH = 16  # images in memory at once, with all activations of the network


# Seconds between two attempts to load a bad champion.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


class Champion(NamedTuple):
    """A loaded champion.

    Attributes:
        entry: its entry in the champions' history.
        function: the SavedModel's serving signature.
        shape: shape of an image, (height, width, channels).
        form: what becomes of a picture's file, of this shape.
        loaded: the SavedModel, which keeps its variables alive.
    """

    entry: Crowned
    function: Any
    shape: tuple[int, ...]
    form: Form
    loaded: Any

    def predictions(self, images: Images) -> list[Any]:
        """Return the answer for each image: nested lists, by name if the model has several outputs."""
        [argument] = self.function.structured_input_signature[1]
        parts = [
            self.function(**{argument: tf.constant(images[start : start + _BATCH])})
            for start in range(0, len(images), _BATCH)
        ]
        columns = {name: np.concatenate([part[name] for part in parts]).tolist() for name in sorted(parts[0])}
        if len(columns) == 1:
            return next(iter(columns.values()))
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def load_champion(store: Store, recipe: str) -> Champion:
    """Load a recipe's champion and warm it up.

    Raises:
        StoreError: there is no champion, or it cannot be read.
        ArtifactError: its files differ from the promoted ones.
    """
    entry = require_champion(store, recipe)
    training = training_of(store, entry.run)
    manifest = read_manifest(store, training.dataset_folder)
    reader = kind_of(training.recipe).reader(store, training, manifest, 0.0, silent())
    with store.workspace("serving") as folder:
        copy_saved_model(store, entry, folder / "model")
        loaded: Any = tf.saved_model.load(str(folder / "model"))
    function = loaded.signatures["serving_default"]
    [spec] = function.structured_input_signature[1].values()
    champion = Champion(entry, function, tuple(spec.shape[1:]), reader.form(manifest), loaded)
    for count in _WARM_UP:
        champion.predictions(np.zeros((count, *champion.shape), np.uint8))
    return champion


class Follower:
    """The served champion; follows changes of the recipe's champion.

    One thread at a time may call :meth:`refresh`; other threads may read ``champion`` meanwhile.
    """

    def __init__(self, store: Store, recipe: str) -> None:
        """Load the champion; raise as :func:`load_champion` does."""
        self._store, self._recipe = store, recipe
        self._names = self._changes()
        self._failed, self._again, self._pause = list[str](), 0.0, _SHORTEST_PAUSE
        self.champion = load_champion(store, recipe)
        self.problem = ""

    def _changes(self) -> list[str]:
        """Return the entries of the champion's history; other files of the folder change without it."""
        return [name for name in self._store.list(f"models/{self._recipe}") if HISTORY.has(name)]

    def refresh(self) -> str:
        """Load a new champion if there is one, and switch to it.

        Returns:
            A description of the change, for the log; empty without one. If the new champion cannot be loaded, the old
            one stays, ``problem`` has the reason, and a call after a pause tries again.
        """
        before = self.problem
        try:
            names = self._changes()
            if names == self._names or (names == self._failed and time.monotonic() < self._again):
                return ""
            # A bad champion is downloaded again after a pause that doubles.
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if names == self._failed else _SHORTEST_PAUSE
            self._failed, self._again = names, time.monotonic() + self._pause
            self.champion = load_champion(self._store, self._recipe)
            self._names, self.problem = names, ""
        except Exception as error:
            # With any problem of the new champion, the old one is still served.
            self.problem = f"number {self.champion.entry.number} stays: {error}"
            return "" if self.problem == before else f"warning: {self.problem}"
        return f"serves number {self.champion.entry.number}, {self.champion.entry.run}"
