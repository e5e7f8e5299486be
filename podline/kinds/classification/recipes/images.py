"""A small residual network for the user's own images.

podline run images --source DIR --root ROOT

The accuracy depends on the images. docs/how-to/images.md describes DIR, and the settings for few images.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.small_images import MUON, SCHEDULE
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, EarlyStopSettings, FitSettings, ModelSettings, Recipe

RECIPE = Recipe(
    name="images",
    dataset="images",
    model=ModelSettings(kind="resnet", width=0.5),
    batch_size=64,
    fit=FitSettings(epoch_steps=8, least_batch=16, steps=400, least_validation=100),
    duration=Duration(epochs=30),
    early_stop=EarlyStopSettings(metric="error", patience=0.5),
    validation_share=0.05,
    optimizer=MUON,
    schedule=SCHEDULE.changed(learning_rate=0.05),
    augmentation=AugmentationSettings(pad=4, flip=True),
)
"""Augmentation that flips images: unsuitable for letters and digits."""
