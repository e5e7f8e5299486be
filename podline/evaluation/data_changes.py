"""The stage that compares two versions of a data set, with the help of the champion's features."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import keras
import numpy as np
import numpy.typing as npt

from podline.arrays import Array
from podline.documents import champions
from podline.documents.manifest import Manifest, dataset_folder, read_manifest
from podline.documents.versions import versions
from podline.drawing.picture_sheet import sheet
from podline.errors import PodlineError, one_line
from podline.evaluation.changed_data import Model, block, compared
from podline.evaluation.forward import finished_model
from podline.evaluation.sheet import save
from podline.progress import Reporter
from podline.stages.data_changes import DataChanges, DataChangesSpec
from podline.store.contract import Store
from podline.store.opening import open_store

_BATCH = 256


def changes(spec: DataChangesSpec, reporter: Reporter) -> DataChanges:
    """Compare two versions, and draw pictures of the changes if the spec names a file.

    Raises:
        SettingsError: the data set has no versions.
        StoreError: a version is missing, or the file cannot be written.
        ArtifactError: a version is damaged.
    """
    store = open_store(spec.root)
    before, after = (read_manifest(store, dataset_folder(spec.dataset, name)) for name in (spec.before, spec.after))
    result, found = compared(store, before, after, _champion(store, before, reporter))
    drawn = block(found)
    if not spec.out or drawn is None:
        return result
    save(sheet([drawn]), Path(spec.out))
    return result.model_copy(update={"png": spec.out})


def _champion(store: Store, before: Manifest, reporter: Reporter) -> Model | None:
    """Return the newest champion that was trained on the earlier version or an older one, or None.

    A later champion was trained on new images, and could recognise them.
    """
    known = [version.fingerprint for version in versions(store, before.dataset)]
    older = set(known[: known.index(before.fingerprint) + 1] if before.fingerprint in known else [before.fingerprint])
    entries = [entry for recipe in champions.recipes(store) for entry in champions.history(store, recipe)]
    mine = [entry for entry in entries if entry.dataset == before.dataset and entry.fingerprint in older]
    for entry in sorted(mine, key=lambda each: each.time, reverse=True):
        try:
            model = finished_model(store, entry.run)
        except PodlineError as error:
            reporter.warn(f"cannot load the champion {entry.run}; trying an earlier one: {one_line(error)}")
            continue
        if model.inputs[0].shape[1:] == before.image_shape:
            return Model(entry.run, features_of(model))
    return None


def features_of(model: keras.Model) -> Callable[[npt.NDArray[np.uint8]], Array]:
    """Return a function from images to the last dense layer's input, (n, values), or else to the outputs."""
    dense = [layer for layer in model.layers if isinstance(layer, keras.layers.Dense)]
    return partial(_answers, keras.Model(model.inputs[0], dense[-1].input if dense else model.outputs[0]))


def _answers(model: keras.Model, images: npt.NDArray[np.uint8]) -> Array:
    parts = [images[first : first + _BATCH] for first in range(0, len(images), _BATCH)]
    return np.concatenate([np.asarray(model(part, training=False)).reshape(len(part), -1) for part in parts])
