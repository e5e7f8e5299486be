"""Exports the trained model: its config, its weights, and a ``.keras`` file for plain Keras.

Evaluation reads ``model/architecture.json`` and ``model/weights.npz``. The checksum of the weights file identifies the
model, so its bytes depend only on the weights. ``model/model.keras`` is for users of plain Keras: it takes uint8
images, normalises them, returns logits or maps, and contains only layers of Keras.
"""

# pyright: standard
from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from podline.base.errors import ArtifactError
from podline.models.layer_copies import exportable, in_float32
from podline.models.messages import cause
from podline.models.of_run import network_of
from podline.models.variables import set_weights, weights
from podline.stages.specs import ARCHITECTURE, WEIGHTS
from podline.store.contract import Store, explained
from podline.training.checkpoints import read_arrays, write_arrays

KERAS = "model/model.keras"
Outputs = list[npt.NDArray[np.float32]]

# Stock batch norm and the fused one round differently: each layer adds a relative error of about 1e-6.
_TOLERANCE = 1e-3
_UNBUILT = re.compile(r"Layer '(\S+)' was never built")


def export_model(store: Store, run_folder: str, model: keras.Model, images: npt.NDArray[np.uint8]) -> str:
    """Publish a model and verify that the published file gives the outputs of the trained model.

    Returns:
        The sha256 of the weights' file.

    Raises:
        StoreError: a file cannot be written.
        ArtifactError: plain Keras cannot load the published file, or its outputs differ from the trained model's.
    """
    stock = exportable(model)
    store.publish_bytes(f"{run_folder}/{ARCHITECTURE}", (stock.to_json() + "\n").encode(), replace=True)
    _, sha256 = write_arrays(store, f"{run_folder}/{WEIGHTS}", weights(stock))
    name = f"{run_folder}/{KERAS}"
    with store.workspace("keras") as folder:
        file = folder / "model.keras"
        with explained("write", store.where(name)):
            stock.save(file)
        store.publish_file(file, name, replace=True)
    published = _loaded(store, name)
    require_equal_answers(store.where(name), outputs_of(in_float32(model), images), outputs_of(published, images))
    return sha256


def _loaded(store: Store, name: str) -> Any:
    """Load a published file with plain Keras."""
    try:
        return keras.models.load_model(store.local(name), compile=False)
    except Exception as error:  # the code of any layer
        unbuilt = _UNBUILT.search(str(error))
        reason = (
            f"layer {unbuilt[1]} has no weights in the file; build it in the build() of the layer that creates it"
            if unbuilt
            else f"{type(error).__name__}: {cause(error)}"
        )
        raise ArtifactError(f"Keras cannot load {store.where(name)}: {reason}") from error


def load_model(store: Store, run_folder: str, weights_sha256: str) -> keras.Model:
    """Load the model that :func:`export_model` published.

    Raises:
        StoreError: a file cannot be read.
        ArtifactError: the weights or the architecture have changed, or cannot be loaded.
    """
    model = network_of(store, run_folder)
    try:
        set_weights(model, read_arrays(store, f"{run_folder}/{WEIGHTS}", weights_sha256))
    except ArtifactError as error:
        raise ArtifactError(f"{error}; train the run again") from error
    return model


def require_equal_answers(what: str, expected: Outputs, found: Outputs) -> None:
    """Check that a published model's outputs equal the trained model's outputs, except for rounding.

    Raises:
        ArtifactError: the outputs differ.
    """
    for trained, published in zip(expected, found, strict=True):
        difference = float(np.max(np.abs(trained - published)))
        allowed = _TOLERANCE * max(1.0, float(np.max(np.abs(trained))))
        if not difference <= allowed:
            raise ArtifactError(
                f"{what} gives outputs that differ by {difference:g} from those of the trained model, expected at most "
                f"{allowed:g}; do not use it"
            )


def outputs_of(model: Any, images: npt.NDArray[np.uint8]) -> Outputs:
    """Return a model's outputs for images (n, …): one array for a classifier, one per stage of a pose network."""
    return [np.asarray(answer) for answer in keras.tree.flatten(model(images, training=False))]
