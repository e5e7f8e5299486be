"""A small residual network, half as wide, on the drawn sample: the whole chain with no download.

podline run sample --root ROOT

Expect, on two CPU cores: 98 % of the 1,000 test images right after 10 epochs, in about a minute.
"""

from __future__ import annotations

from podline.recipes.settings import (
    AugmentationSettings,
    Duration,
    ModelSettings,
    OptimizerSettings,
    Part,
    Recipe,
    ScheduleSettings,
)

RECIPE = Recipe(
    name="sample",
    dataset="sample",
    model=ModelSettings(kind="resnet", width=0.5),
    batch_size=128,
    duration=Duration(epochs=10),
    optimizer=OptimizerSettings(kind="sgd", momentum=0.9, nesterov=True, weight_decay=5e-3),
    schedule=ScheduleSettings(kind="one_cycle", learning_rate=0.2, warmup=Part(share=0.2)),
    augmentation=AugmentationSettings(pad=4, flip=True),
    label_smoothing=0.1,
)
