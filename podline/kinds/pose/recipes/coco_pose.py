"""A pose network on COCO's people: EfficientNet-Lite0 with ImageNet's weights, part affinity fields, then heatmaps.

podline run coco_pose --root ROOT
podline run coco_pose --source DIR --root ROOT

Without a source it uses a synthetic sample of stick people and an untrained MobileNetV2. A source has images and
annotations in COCO's layout.
"""

from __future__ import annotations

from podline.base.frozen import Json
from podline.kinds.pose.settings import PoseAugmentationSettings, PoseModelSettings, PoseSettings, PoseTargetSettings
from podline.recipes.bounds import MOST
from podline.recipes.durations import Duration, Part
from podline.recipes.settings import FewSettings, FitSettings, OptimizerSettings, Recipe, ScheduleSettings

_HEAD = ("neck", "stage")
# Layers to train: no batch norms, since statistics of few images are worse than those of ImageNet.
_UPPER = ("block3*conv", "block4*conv", "block5*conv")


def pretrained(
    images: int, epochs: int, views: int, *, side: int = 256, width: int = 64, least_side: int = 1
) -> FewSettings:
    """Return the settings for few training images: a trunk with ImageNet's weights, first frozen, then trained too.

    Args:
        images: the largest number of training images.
        epochs: duration of the training.
        views: number of augmented versions of an image while the trunk is frozen.
        side: side of the records' images, in pixels.
        width: number of channels of the layers after the trunk.
        least_side: see :class:`FewSettings`.
    """
    later: dict[str, Json] = {
        "task.augmentation.views": 0,
        "trainable_layers": [*_HEAD, *_UPPER],
        "schedule.learning_rate": 3e-3,
    }
    changes: dict[str, Json] = {
        "task.model.trunk": "efficientnet-lite0",
        "task.model.width": 1.0,
        "task.model.features": width,
        "task.model.stage_width": width,
        "task.side": side,
        "task.augmentation.views": views,
        "batch_size": 16,
        "duration.epochs": epochs,
        "schedule.by_phase": True,
        "trainable_layers": [*_HEAD],
        "phases": [{"from_share": 0.4, "changes": later}],
    }
    return FewSettings(images=images, side=least_side, changes=changes)


RECIPE = Recipe(
    name="coco_pose",
    dataset="coco",
    task=PoseSettings(
        side=256,
        model=PoseModelSettings(width=0.5, features=64, paf_stages=2, heatmap_stages=1, stage_width=64, stage_depth=2),
        targets=PoseTargetSettings(stride=8, joint_sigma=7.0, limb_sigma=7.0),
        emphasis=4.0,
        augmentation=PoseAugmentationSettings(
            flip=True,
            rotation=20,
            smallest=0.75,
            largest=1.33,
            shift=0.1,
            brightness=0.1,
            contrast=0.2,
            saturation=0.2,
        ),
    ),
    batch_size=16,
    fit=FitSettings(),
    few=(pretrained(2_000, epochs=40, views=4, least_side=400), pretrained(MOST, epochs=20, views=1, least_side=400)),
    evaluation_batch_size=25,
    duration=Duration(epochs=30),
    optimizer=OptimizerSettings(kind="adam"),
    schedule=ScheduleSettings(kind="one_cycle", learning_rate=2e-3, warmup=Part(share=0.1)),
    ema_decay=0.995,
    evaluate_every=Duration(epochs=5),
)
