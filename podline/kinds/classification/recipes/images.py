"""A small residual network on images of one's own.

podline run images --source DIR --root ROOT

Expect nothing in particular: it depends on the images. docs/how-to/images.md tells what DIR may be, and what few images
change.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.small_images import MUON, SCHEDULE
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, FitSettings, ModelSettings, Recipe

RECIPE = Recipe(
    name="images",
    dataset="images",
    model=ModelSettings(kind="resnet", width=0.5),
    batch_size=64,
    fit=FitSettings(epoch_steps=8, least_batch=16, steps=400),
    duration=Duration(epochs=30),
    optimizer=MUON,
    schedule=SCHEDULE.changed(learning_rate=0.05),
    augmentation=AugmentationSettings(pad=4, flip=True),
)
"""Flips images: not for letters and digits."""
