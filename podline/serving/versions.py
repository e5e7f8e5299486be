"""The versions of a champion that are served: loaded, warmed up, and only then switched to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from podline.documents.champions import Crowned
from podline.documents.manifest import read_manifest
from podline.inventory.catalogue import training_of
from podline.kinds.table import kind_of
from podline.progress import silent
from podline.serving.dialect import Images, Outputs, RequestError, Target, version_status
from podline.serving.layout import copy_saved_model, require_champion
from podline.store.contract import Store

CHAMPION, PREVIOUS = "champion", "previous"
"""The labels of versions."""

_WARM_UP = (1, 2)
_BATCH = 16  # images in memory at once with all that a network makes of them
_DEFAULT = "serving_default"


class Model(NamedTuple):
    """A SavedModel in memory.

    Attributes:
        signatures: from images (n, height, width, channels) to outputs, by name.
        input: the name of the one input.
        shape: of an image, (height, width, channels).
        metadata: the signatures as the dialect tells of them.
        fit: from a picture's pixels to an image of this shape.
    """

    signatures: Mapping[str, Callable[[Images], Outputs]]
    input: str
    shape: tuple[int, ...]
    metadata: dict[str, Any]
    fit: Callable[[Images], Images]

    def answer(self, images: Images, signature: str) -> Outputs:
        """The model's outputs for some images.

        Raises:
            RequestError: there is no such signature.
        """
        name = signature or _DEFAULT
        if name not in self.signatures:
            known = ", ".join(sorted(self.signatures))
            raise RequestError(f'Serving signature key "{name}" not found; there are {known}')
        answer = self.signatures[name]
        parts = [answer(images[start : start + _BATCH]) for start in range(0, len(images), _BATCH)]
        return {output: np.concatenate([part[output] for part in parts]) for output in parts[0]}


@dataclass(frozen=True)
class Version:
    """A model under the number of the champion's history that it became the champion by."""

    entry: Crowned
    model: Model

    @property
    def number(self) -> int:
        """The version."""
        return self.entry.number


class Versions:
    """The champion and, once it has changed, the one before it, which in-flight and pinned requests go on with.

    One thread at a time may call :meth:`refresh`; any thread may read meanwhile.
    """

    def __init__(self, store: Store, recipe: str) -> None:
        """Loads the champion.

        Raises:
            StoreError: there is none, or it cannot be read.
            ArtifactError: it is not what was promoted.
        """
        self._store, self._recipe = store, recipe
        self._names = store.list(f"models/{recipe}")
        entry = require_champion(store, recipe)
        # Always replaced as a whole: who reads it while it changes has the old versions or the new ones.
        self._served: tuple[Version, ...] = (Version(entry, load(store, entry)),)
        self._loading: Crowned | None = None
        self._problem = ""

    @property
    def champion(self) -> Version:
        """The version that is asked where none is named."""
        return self._served[0]

    def version(self, target: Target) -> Version:
        """The version that a request names.

        Raises:
            RequestError: it is not served.
        """
        served = self._served
        if target.model != self._recipe:
            raise RequestError(f"Servable not found for request: {target}", 404)
        if target.label is not None:
            labelled = dict(zip((CHAMPION, PREVIOUS), served, strict=False))
            if target.label not in labelled:
                raise RequestError(f"Unrecognized servable version label: {target.label}")
            return labelled[target.label]
        found = [each for each in served if target.version in (None, each.number)]
        if not found:
            raise RequestError(f"Servable not found for request: {target}", 404)
        return found[0]

    def status(self, target: Target) -> dict[str, Any]:
        """The answer to a question for the model's status.

        Raises:
            RequestError: there is no such model or version.
        """
        if target.model != self._recipe:
            raise RequestError(f"Could not find any versions of model {target.model}", 404)
        shown = {each.number: version_status(each.number, "AVAILABLE") for each in self._served}
        if self._loading is not None:
            number, problem = self._loading.number, self._problem
            shown.setdefault(number, version_status(number, "END" if problem else "LOADING", problem))
        wanted = self.version(target).number if target.label is not None else target.version
        if wanted is not None and wanted not in shown:
            raise RequestError(f"Could not find version {wanted} of model {target.model}", 404)
        chosen = sorted(shown, reverse=True) if wanted is None else [wanted]
        return {"model_version_status": [shown[number] for number in chosen]}

    def refresh(self) -> Version | None:
        """Looks for a new champion; loads it, warms it up and switches to it.

        Returns:
            The new version; None if there is none.

        Raises:
            Exception: it cannot be loaded; the old one goes on, and the next call tries again.
        """
        names = self._store.list(f"models/{self._recipe}")
        if names == self._names:
            return None
        entry = require_champion(self._store, self._recipe)
        if entry == self.champion.entry:
            self._names = names
            return None
        self._loading, self._problem = entry, ""
        try:
            self._served = (Version(entry, self._model(entry)), self.champion)
        except Exception as error:
            self._problem = str(error)
            raise
        self._loading, self._names = None, names
        return self.champion

    def _model(self, entry: Crowned) -> Model:
        """A model; one that is in memory already, as after a rollback, is not loaded again."""
        there = [each.model for each in self._served if _identity(each.entry) == _identity(entry)]
        return there[0] if there else load(self._store, entry)


def _identity(entry: Crowned) -> tuple[str, str]:
    return entry.run, entry.weights_sha256


def load(store: Store, entry: Crowned) -> Model:
    """Loads a champion's SavedModel and warms it up.

    Raises:
        StoreError: it cannot be read.
        ArtifactError: it is not what was promoted.
    """
    training = training_of(store, entry.run)
    manifest = read_manifest(store, training.dataset_folder)
    reader = kind_of(training.recipe).reader(store, training, manifest, 0.0, silent())
    with store.workspace("serving") as folder:
        copy_saved_model(store, entry, folder / "model")
        loaded: Any = tf.saved_model.load(str(folder / "model"))
        described = saved_model_pb2.SavedModel.FromString((folder / "model" / "saved_model.pb").read_bytes())
    signatures = {name: _signature(loaded, name) for name in loaded.signatures}
    [(name, spec)] = loaded.signatures[_DEFAULT].structured_input_signature[1].items()
    metadata = {
        name: json_format.MessageToDict(
            described.meta_graphs[0].signature_def[name],
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        for name in signatures
    }
    shape = tuple(spec.shape[1:])
    model = Model(signatures, name, shape, metadata, reader.fed)
    for count in _WARM_UP:
        model.answer(np.zeros((count, *shape), np.uint8), "")
    return model


def _signature(loaded: Any, name: str) -> Callable[[Images], Outputs]:
    function = loaded.signatures[name]
    [argument] = function.structured_input_signature[1]

    def answer(images: Images) -> Outputs:
        outputs = function(**{argument: tf.constant(images)})
        # A signature's variables live as long as what it was loaded with.
        _ = loaded
        return {output: outputs[output].numpy() for output in sorted(outputs)}

    return answer
