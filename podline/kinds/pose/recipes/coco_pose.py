"""A pose network on COCO's people: MobileNetV2, then part affinity fields, then heatmaps.

podline run coco_pose --root ROOT
podline run coco_pose --source DIR --root ROOT

Without a source it uses the drawn sample of stick people, else images and annotations in COCO's layout.
"""

from __future__ import annotations

from podline.kinds.pose.settings import PoseAugmentationSettings, PoseModelSettings, PoseSettings, PoseTargetSettings
from podline.recipes.durations import Duration, Part
from podline.recipes.settings import OptimizerSettings, Recipe, ScheduleSettings

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
    evaluation_batch_size=25,
    duration=Duration(epochs=30),
    optimizer=OptimizerSettings(kind="adam"),
    schedule=ScheduleSettings(kind="one_cycle", learning_rate=2e-3, warmup=Part(share=0.1)),
    ema_decay=0.995,
    evaluate_every=Duration(epochs=5),
)
