"""Trains the network of cifar10-small for 28 epochs of CIFAR-10, 19 of them at 24 × 24: 0.51 PFLOP.

podline run cifar10-medium --source DIR --root ROOT

Expect an accuracy of 90.3 % on the test images, for CIFAR-10 as JPEG files. A copy of the recipe in PyTorch was
measured; see benchmarks/RESULTS.md.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.cifar10_small import RECIPE as SMALL
from podline.recipes.durations import Duration
from podline.recipes.phases import PhaseSettings
from podline.recipes.settings import AugmentationSettings

RECIPE = SMALL.changed(
    name="cifar10-medium",
    duration=Duration(epochs=28),
    augmentation=AugmentationSettings(pad=2, flip=True, alternate=True, cutout=6, image_size=24),
    phases=(PhaseSettings(from_share=0.68, changes={"augmentation.image_size": 0}),),
)
