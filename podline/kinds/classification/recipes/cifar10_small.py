"""A residual network, twice as wide as that of cifar10, for six passes over CIFAR-10: 0.154 PFLOP.

podline run cifar10-small --source DIR --root ROOT

Expect 88.7 % of 5,082 images held out of CIFAR-10's training split as JPEG files; benchmarks/RESULTS.md has the time.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.small_images import FALLING, MUON
from podline.kinds.classification.settings import ClassificationSettings
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, ModelSettings, Recipe

RECIPE = Recipe(
    name="cifar10-small",
    dataset="cifar10",
    model=ModelSettings(kind="resnet", width=2.0),
    batch_size=1000,
    precision="auto",
    duration=Duration(epochs=6),
    optimizer=MUON,
    schedule=FALLING,
    augmentation=AugmentationSettings(pad=2, flip=True, alternate=True),
    task=ClassificationSettings(label_smoothing=0.1, views=6),
    evaluate_every=Duration(epochs=2),
)
