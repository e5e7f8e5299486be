"""A small residual network, twice as wide as that of cifar10, on the 100 fine classes of CIFAR-100.

podline run cifar100 --source DIR --root ROOT

The settings are those of ``cifar10`` with a wider network and half as many epochs, each followed by an evaluation.
"""

from __future__ import annotations

from podline.kinds.classification.recipes.cifar10 import RECIPE as CIFAR10
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings

RECIPE = CIFAR10.changed(
    name="cifar100",
    dataset="cifar100",
    model=ModelSettings(kind="resnet", width=2.0),
    duration=Duration(epochs=30),
    evaluate_every=Duration(epochs=1),
)
