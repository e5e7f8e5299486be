"""A small ResNet on CIFAR-10.

podline run cifar10 --source DIR --root ROOT
"""

from __future__ import annotations

from podline.recipes.settings import AugmentationSettings, Duration, ModelSettings, Recipe, ScheduleSettings

RECIPE = Recipe(
    name="cifar10",
    dataset="cifar10",
    model=ModelSettings(kind="resnet"),
    batch_size=128,
    duration=Duration(epochs=20),
    schedule=ScheduleSettings(kind="one_cycle", learning_rate=0.2, warmup=Duration(epochs=4)),
    augmentation=AugmentationSettings(pad=4, flip=True),
)
