"""Loads the model of a champion or of any run into memory, as a SavedModel, and warms it up."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from podline.base.arrays import Array, Pixels
from podline.base.errors import StoreUnavailableError
from podline.base.progress import silent
from podline.champions.exports import write_saved_model
from podline.champions.serving.layout import copy_saved_model, require_champion
from podline.contract.kind import kind_of
from podline.data.pictures import Form
from podline.documents.champions import HISTORY, recipes
from podline.documents.manifest import read_manifest
from podline.evaluation.forward import finished_model
from podline.evaluation.predicting import PictureReader
from podline.ledger.inventory.catalogue import training_of
from podline.store.contract import Store

_WARM_UP = (1, 2)  # batch sizes; with the second, TensorFlow traces a graph for every batch size
_BATCH = 16  # images per call, to limit the memory for activations
# Seconds between two attempts to load a champion that could not be loaded.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


class Served(NamedTuple):
    """A loaded model.

    Attributes:
        version: the champion's number; 1 if a run is served.
        function: the SavedModel's serving signature.
        reader: formats outputs as answers.
        form: how a picture file is decoded and resized.
        loaded: the SavedModel, referenced so that its variables stay alive.
    """

    version: int
    run: str
    function: Any
    reader: PictureReader
    form: Form
    loaded: Any

    @property
    def input(self) -> tuple[str, Any]:
        """The name and the TensorSpec of the model's only input."""
        [named] = self.function.structured_input_signature[1].items()
        return named

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an image, (height, width, channels)."""
        return tuple(self.input[1].shape[1:])

    def outputs(self, images: Pixels) -> dict[str, Array]:
        """Return name → output, (n, …), for images, uint8 (n, height, width, channels)."""
        name, _ = self.input
        parts = [
            self.function(**{name: tf.constant(images[start : start + _BATCH])})
            for start in range(0, len(images), _BATCH)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in sorted(parts[0])}

    def answers(self, outputs: dict[str, Array]) -> list[Any]:
        """Return for each image the most probable classes, the predicted labels or a value; empty for a pose model."""
        if self.reader.tells == "people":
            return []
        [values] = outputs.values()
        tall, wide = self.shape[:2]
        said = [self.reader.said("", place, (wide, tall), row, self.reader.most) for place, row in enumerate(values, 1)]
        return [
            each.answer if each.classes is None else [share.model_dump(mode="json") for share in each.classes]
            for each in said
        ]


def load_served(store: Store, name: str) -> Served:
    """Load a recipe's champion, or a finished run's model, and warm it up.

    Raises:
        StoreError: the champion or run does not exist, or cannot be read.
        ArtifactError: its files differ from the promoted or trained ones.
    """
    entry = require_champion(store, name) if name in recipes(store) else None
    run = entry.run if entry else name
    training = training_of(store, run)
    manifest = read_manifest(store, training.dataset_folder)
    reader = kind_of(training.recipe).reader(store, training, manifest, None, silent())
    with store.workspace("serving") as folder:
        if entry:
            copy_saved_model(store, entry, folder / "model")
        else:
            write_saved_model(finished_model(store, run), folder / "model")
        loaded: Any = tf.saved_model.load(str(folder / "model"))
    version, function = entry.number if entry else 1, loaded.signatures["serving_default"]
    served = Served(version, run, function, reader, reader.form(manifest), loaded)
    for count in _WARM_UP:
        served.outputs(np.zeros((count, *served.shape), np.uint8))
    return served


class Follower:
    """Holds the served model, and replaces it when the recipe has a new champion. A served run is never replaced.

    Only one thread at a time may call :meth:`refresh`; other threads may read ``served`` at any time.
    """

    def __init__(self, store: Store, name: str) -> None:
        """Load the model; raises the errors of :func:`load_served`."""
        self._store, self._name = store, name
        self._names = self._changes()
        self._failed, self._again, self._pause = list[str](), 0.0, _SHORTEST_PAUSE
        self.served = load_served(store, name)
        self.problem = self._refusal = ""

    def _changes(self) -> list[str]:
        """Return the entries of the history of champions; other files in this folder do not count as a change."""
        return [name for name in self._store.list(f"models/{self._name}") if HISTORY.has(name)]

    def refresh(self) -> str:
        """Load and serve the new champion, if there is one.

        Returns:
            A line for the log; empty without a change. If the store cannot be read or the new champion cannot be
            loaded, the old champion is still served, ``problem`` is the reason, and a call after a pause tries again.
        """
        before, line = self.problem, ""
        try:
            names = self._changes()
        except Exception as error:
            self.problem = f"still serves number {self.served.version}, as the store cannot be read: {error}"
        else:
            line = self._follow(names)
            self.problem = self._refusal
        return f"warning: {self.problem}" if self.problem not in ("", before) else line

    def _follow(self, names: list[str]) -> str:
        if names == self._names:
            self._refusal = ""
        elif names != self._failed or time.monotonic() >= self._again:
            # After each failure to load the same champion, the pause doubles.
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if names == self._failed else _SHORTEST_PAUSE
            self._failed, self._again = names, time.monotonic() + self._pause
            try:
                self.served = load_served(self._store, self._name)
            except Exception as error:
                # With any problem of the new champion, the old one is still served.
                away = isinstance(error, StoreUnavailableError)
                what = "the store cannot be read" if away else "the new champion cannot be loaded"
                self._refusal = f"still serves number {self.served.version}, as {what}: {error}"
            else:
                self._names, self._refusal = names, ""
                return f"serves number {self.served.version}, {self.served.run}"
        return ""
