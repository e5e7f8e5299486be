"""A residual network, twice as wide, on CIFAR-10 for as long as fits into fifteen minutes of two CPU cores.

podline run cifar10-15min --source DIR --root ROOT

Expect 90.5 % of 5,082 images held out of CIFAR-10's training split as JPEG files; benchmarks/RESULTS.md has the time.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.cifar10_5min import RECIPE as SHORT
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings

RECIPE = SHORT.changed(
    name="cifar10-15min",
    duration=Duration(epochs=20),
    augmentation=AugmentationSettings(pad=2, flip=True, alternate=True, cutout=8),
)
