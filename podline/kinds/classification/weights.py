"""Computes the weight of each class in a classifier's loss."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from podline.base.errors import SettingsError
from podline.documents.manifest import Manifest
from podline.kinds.classification.settings import ClassificationSettings
from podline.recipes.settings import Recipe
from podline.settings.machine import nearest


def class_weights(recipe: Recipe, manifest: Manifest) -> npt.NDArray[np.float32] | None:
    """Return the factors for the loss of each class's examples, (classes,); None if the recipe has no class weights.

    ``balanced`` is n / (classes × count), like in scikit-learn: over the n examples of the training split, including
    held-out examples, all classes have the same total weight, and the mean weight is 1. ``classes`` is the number of
    classes with examples, and ``count`` is the number of examples of the class.

    Raises:
        SettingsError: a weight names a class that the data set lacks.
    """
    asked, names = ClassificationSettings.of(recipe).class_weights, manifest.class_names
    if asked is None:
        return None
    if asked == "balanced":
        counts = np.array(manifest.split("train").class_counts)
        return (counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))).astype(np.float32)
    for name in asked:
        if name not in names:
            raise SettingsError(
                f"task.class_weights: got {name!r}, expected a class of {manifest.dataset}; {nearest(name, names)}"
            )
    return np.array([asked.get(name, 1.0) for name in names], np.float32)
