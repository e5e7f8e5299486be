"""A pose network on keypoints of one's own: any annotations in COCO's format, whatever their joints.

podline run keypoints --source DIR --root ROOT

Joints, limbs and mirrored pairs are those of the annotations; docs/how-to/keypoints.md tells what is expected of them.
"""

from __future__ import annotations

from podline.kinds.pose.settings import PoseAugmentationSettings, PoseModelSettings, PoseSettings, PoseTargetSettings
from podline.recipes.durations import Duration, Part
from podline.recipes.settings import FitSettings, OptimizerSettings, Recipe, ScheduleSettings

RECIPE = Recipe(
    name="keypoints",
    dataset="keypoints",
    task=PoseSettings(
        side=256,
        max_people=10,
        model=PoseModelSettings(width=0.5, features=64, paf_stages=2, heatmap_stages=1, stage_width=64, stage_depth=2),
        targets=PoseTargetSettings(stride=8, joint_sigma=7.0, limb_sigma=7.0),
        emphasis=4.0,
        # Whether a mirror image needs other names is known by the data set alone: flip is off.
        augmentation=PoseAugmentationSettings(
            rotation=15,
            smallest=0.85,
            largest=1.18,
            shift=0.05,
            brightness=0.1,
            contrast=0.2,
            saturation=0.2,
        ),
    ),
    batch_size=8,
    fit=FitSettings(),
    evaluation_batch_size=8,
    duration=Duration(steps=2000),
    optimizer=OptimizerSettings(kind="adam"),
    schedule=ScheduleSettings(kind="one_cycle", learning_rate=2e-3, warmup=Part(share=0.1)),
    ema_decay=0.98,
    evaluate_every=Duration(steps=250),
)
