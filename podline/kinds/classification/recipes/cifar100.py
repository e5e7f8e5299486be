"""A small residual network, twice as wide, on the 100 fine classes of CIFAR-100.

podline run cifar100 --source DIR --root ROOT

The settings are those of ``cifar10`` with a wider network and half as many epochs.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.small_images import OPTIMIZER, SCHEDULE
from podline.kinds.classification.settings import ClassificationSettings
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, ModelSettings, Recipe

RECIPE = Recipe(
    name="cifar100",
    dataset="cifar100",
    model=ModelSettings(kind="resnet", width=2.0),
    batch_size=128,
    duration=Duration(epochs=30),
    optimizer=OPTIMIZER,
    schedule=SCHEDULE,
    augmentation=AugmentationSettings(pad=4, flip=True, cutout=8),
    task=ClassificationSettings(label_smoothing=0.1),
)
