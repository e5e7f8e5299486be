"""A small residual network on CIFAR-10.

podline run cifar10 --source DIR --root ROOT

Expect, on two CPU cores: an accuracy of 81 % on 1,017 test images after 60 epochs of 8,068 training images, in 7 to 15
minutes. With the 50,000 images of the official archive an epoch takes six times as long.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.small_images import OPTIMIZER, SCHEDULE
from podline.kinds.classification.settings import ClassificationSettings
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, Recipe

RECIPE = Recipe(
    name="cifar10",
    dataset="cifar10",
    batch_size=128,
    duration=Duration(epochs=60),
    optimizer=OPTIMIZER,
    schedule=SCHEDULE,
    augmentation=AugmentationSettings(pad=4, flip=True, cutout=8),
    task=ClassificationSettings(label_smoothing=0.1),
    evaluate_every=Duration(epochs=2),
)
