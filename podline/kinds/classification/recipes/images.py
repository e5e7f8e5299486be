"""A network for the user's own images: with few images EfficientNet-Lite0 with ImageNet's weights, else a small one.

podline run images --source DIR --root ROOT

The accuracy depends on the images. docs/how-to/images.md describes DIR, and the settings for few images.
"""

from __future__ import annotations

from podline.base.frozen import Json
from podline.kinds.classification.recipes.small_images import MUON, SCHEDULE
from podline.recipes.durations import Duration
from podline.recipes.settings import (
    AugmentationSettings,
    EarlyStopSettings,
    FewSettings,
    FitSettings,
    ModelSettings,
    Recipe,
)

_UPPER: dict[str, Json] = {
    "augmentation.views": 0,
    # No batch norms: statistics of few images are worse than those of ImageNet.
    "trainable_layers": ["block5*conv", "block6*conv", "block7*conv", "head_conv", "classifier"],
}
_PRETRAINED: dict[str, Json] = {
    "model.kind": "efficientnet-lite0",
    "model.width": 1.0,
    "model.weights": "imagenet",
    "batch_size": 32,
    "evaluation_batch_size": 64,
    "optimizer.kind": "adamw",
    "optimizer.weight_decay": 0.01,
    # Without a warm-up in each phase, most channels of the last blocks die in their first steps.
    "schedule.by_phase": True,
    "task.label_smoothing": 0.1,
    "augmentation.pad": 0,
    "augmentation.crop": 0.5,
    "trainable_layers": ["classifier"],
}
# Learning rates of the phase that trains the classifier alone, and of the phase that also trains the last blocks.
_CLASSIFIER, _BLOCKS = 0.004, 0.001


def _few(images: int, side: int, views: int, rate: float = 1.0, *, blocks: bool = True) -> FewSettings:
    """Return the settings for up to ``images`` training images."""
    changes = _UPPER | {"schedule.learning_rate": rate * _BLOCKS}
    by_number: dict[str, Json] = {
        "conversion.side": side,
        "augmentation.views": views,
        "schedule.learning_rate": rate * _CLASSIFIER,
    }
    later: dict[str, Json] = {"phases": [{"from_share": 0.5, "changes": changes}]} if blocks else {}
    return FewSettings(images=images, side=64, changes=_PRETRAINED | by_number | later)


RECIPE = Recipe(
    name="images",
    dataset="images",
    model=ModelSettings(kind="resnet", width=0.5),
    batch_size=64,
    fit=FitSettings(epoch_steps=8, least_batch=16, steps=400, least_validation=100),
    duration=Duration(epochs=30),
    early_stop=EarlyStopSettings(metric="error", patience=0.5),
    validation_share=0.05,
    optimizer=MUON,
    schedule=SCHEDULE.changed(learning_rate=0.05),
    augmentation=AugmentationSettings(pad=4, flip=True),
    few=(
        # On 126 photographs of ants and bees, training the classifier alone gives 94.8 %, the last blocks too 92.2 %.
        _few(300, side=224, views=8, rate=0.3, blocks=False),
        _few(1_000, side=224, views=8, rate=0.3),
        _few(5_000, side=192, views=2),
        _few(13_000, side=128, views=2),
    ),
)
"""Augmentation that flips images: unsuitable for letters and digits."""
