"""A small residual network that names any number of labels on images of one's own.

podline run labels --source DIR --root ROOT

Expect nothing in particular: it depends on the images. docs/how-to/labels.md tells what DIR may be.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.images import RECIPE as IMAGES
from podline.kinds.classification.recipes.small_images import OPTIMIZER, SCHEDULE
from podline.kinds.labels.settings import LabelsSettings
from podline.recipes.settings import AugmentationSettings, FitSettings

# Thresholds are chosen on the images that are held out. Muon was measured with classes alone.
RECIPE = IMAGES.changed(
    name="labels",
    dataset="labels",
    task=LabelsSettings(),
    fit=FitSettings(epoch_steps=8, least_batch=16, rate=True, steps=400),
    optimizer=OPTIMIZER,
    schedule=SCHEDULE.changed(learning_rate=0.1),
    augmentation=AugmentationSettings(pad=8, flip=True),
    validation_share=0.1,
)
"""Flips images: not for letters and digits."""
