"""A small residual network that predicts any number of labels for the user's own images.

podline run labels --source DIR --root ROOT

The quality depends on the images. docs/how-to/labels.md describes DIR.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.images import RECIPE as IMAGES
from podline.kinds.classification.recipes.small_images import OPTIMIZER, SCHEDULE
from podline.kinds.labels.settings import LabelsSettings
from podline.recipes.settings import AugmentationSettings, FitSettings

# The held-out images choose the thresholds. Muon and published weights were only measured with classes.
RECIPE = IMAGES.changed(
    name="labels",
    dataset="labels",
    task=LabelsSettings(),
    fit=FitSettings(epoch_steps=8, least_batch=16, rate=True, steps=400),
    few=(),
    optimizer=OPTIMIZER,
    schedule=SCHEDULE.changed(learning_rate=0.1),
    augmentation=AugmentationSettings(pad=8, flip=True),
    early_stop=None,
    validation_share=0.1,
)
"""Augmentation that flips images: unsuitable for letters and digits."""
