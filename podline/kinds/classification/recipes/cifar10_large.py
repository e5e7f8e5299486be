"""A network twice as wide as cifar10-small, for 30 epochs of CIFAR-10 at 16 × 16, 24 × 24 and 32 × 32: 1.98 PFLOP.

podline run cifar10-large --source DIR --root ROOT

Expect an accuracy of 91.8 % on the test images, for CIFAR-10 as JPEG files. A copy of the recipe in PyTorch was
measured; see benchmarks/RESULTS.md. It is meant for a GPU or a TPU: two CPU cores need more than two hours.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.cifar10_small import RECIPE as SMALL
from podline.recipes.durations import Duration
from podline.recipes.phases import PhaseSettings
from podline.recipes.settings import AugmentationSettings, ModelSettings

RECIPE = SMALL.changed(
    name="cifar10-large",
    model=ModelSettings(kind="resnet", width=4.0, activation="gelu"),
    duration=Duration(epochs=30),
    augmentation=AugmentationSettings(pad=2, flip=True, alternate=True, cutout=12, image_size=16),
    phases=(
        PhaseSettings(from_share=0.3, changes={"augmentation.image_size": 24}),
        PhaseSettings(from_share=0.6, changes={"augmentation.image_size": 0}),
    ),
)
