"""A small residual network, half as wide as that of cifar10, on MNIST.

podline run mnist --source DIR --root ROOT

Expect, on two CPU cores: an accuracy of 99.6 % on the 10,000 test images after 5 epochs, in 2 to 4 minutes.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.sample import RECIPE as SAMPLE
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings

RECIPE = SAMPLE.changed(
    name="mnist", dataset="mnist", duration=Duration(epochs=5), augmentation=AugmentationSettings(pad=2)
)
