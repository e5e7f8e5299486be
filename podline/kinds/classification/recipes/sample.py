"""A small residual network, half as wide, on a synthetic data set: the whole pipeline without a download.

podline run sample --root ROOT

Expect, on two CPU cores: an accuracy of 98 % on the 1,000 test images after 10 epochs, in about a minute.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.small_images import OPTIMIZER, SCHEDULE
from podline.kinds.classification.settings import ClassificationSettings
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, ModelSettings, Recipe

RECIPE = Recipe(
    name="sample",
    dataset="sample",
    model=ModelSettings(kind="resnet", width=0.5),
    batch_size=128,
    duration=Duration(epochs=10),
    optimizer=OPTIMIZER,
    schedule=SCHEDULE,
    augmentation=AugmentationSettings(pad=4, flip=True),
    task=ClassificationSettings(label_smoothing=0.1),
)
