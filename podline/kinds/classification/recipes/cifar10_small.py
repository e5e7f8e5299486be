"""A residual network, twice as wide as that of cifar10, for eight epochs of CIFAR-10: 0.15 PFLOP.

podline run cifar10-small --source DIR --root ROOT

Five of the epochs use images of 24 × 24, which cost 0.56 times as much as full images. Expect an accuracy of 88.9 % on
the test images, for CIFAR-10 as JPEG files. A copy of the recipe in PyTorch was measured; see benchmarks/RESULTS.md.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.small_images import FALLING, MUON
from podline.kinds.classification.settings import ClassificationSettings
from podline.recipes.durations import Duration
from podline.recipes.phases import PhaseSettings
from podline.recipes.settings import AugmentationSettings, ModelSettings, Recipe

RECIPE = Recipe(
    name="cifar10-small",
    dataset="cifar10",
    model=ModelSettings(kind="resnet", width=2.0, activation="gelu"),
    batch_size=1000,
    precision="auto",
    duration=Duration(epochs=8),
    optimizer=MUON,
    schedule=FALLING,
    augmentation=AugmentationSettings(pad=2, flip=True, alternate=True, image_size=24),
    phases=(PhaseSettings(from_share=0.63, changes={"augmentation.image_size": 0}),),
    task=ClassificationSettings(label_smoothing=0.1, views=6),
    evaluate_every=Duration(epochs=2),
)
