"""The network of cifar10-small for twenty passes over CIFAR-10: 0.515 PFLOP.

podline run cifar10-medium --source DIR --root ROOT

Expect 90.5 % of 5,082 images held out of CIFAR-10's training split as JPEG files; benchmarks/RESULTS.md has the time.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.cifar10_small import RECIPE as SMALL
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings

RECIPE = SMALL.changed(
    name="cifar10-medium",
    duration=Duration(epochs=20),
    augmentation=AugmentationSettings(pad=2, flip=True, alternate=True, cutout=8),
)
