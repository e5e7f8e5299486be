"""A small ResNet on the drawn sample.

podline run sample --root ROOT
"""

from __future__ import annotations

from podline.recipes.settings import AugmentationSettings, Duration, ModelSettings, Recipe, ScheduleSettings

RECIPE = Recipe(
    name="sample",
    dataset="sample",
    model=ModelSettings(kind="resnet", width=0.5),
    batch_size=128,
    duration=Duration(epochs=6),
    schedule=ScheduleSettings(kind="one_cycle", learning_rate=0.1, warmup=Duration(epochs=1)),
    augmentation=AugmentationSettings(pad=2, flip=True),
)
