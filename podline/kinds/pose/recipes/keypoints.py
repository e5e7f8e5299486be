"""A pose network for the user's own keypoints: any annotations in COCO's format, with any joints.

podline run keypoints --source DIR --root ROOT

The annotations define joints, limbs and mirrored pairs; docs/how-to/keypoints.md lists the requirements.
"""

from __future__ import annotations

from podline.kinds.pose.recipes.coco_pose import RECIPE as COCO
from podline.kinds.pose.recipes.coco_pose import pretrained
from podline.kinds.pose.settings import PoseAugmentationSettings, PoseSettings
from podline.recipes.bounds import MOST
from podline.recipes.durations import Duration
from podline.recipes.settings import FitSettings

RECIPE = COCO.changed(
    name="keypoints",
    dataset="keypoints",
    task=PoseSettings.of(COCO).changed(
        max_people=10,
        augmentation=PoseAugmentationSettings(
            flip=None,
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
    fit=FitSettings(epoch_steps=2, steps=600),
    few=(
        pretrained(300, epochs=60, views=8),
        pretrained(2_000, epochs=40, views=4),
        pretrained(MOST, epochs=20, views=1, side=192, width=128),
    ),
    evaluation_batch_size=8,
    duration=Duration(steps=2000),
    ema_decay=0.98,
    evaluate_every=Duration(steps=250),
)
