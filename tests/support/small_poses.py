"""A converted data set of tiny images with people, written in milliseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from small_dataset import publish

from podline.documents.manifest import Manifest
from podline.documents.skeleton import COCO, SKELETON
from podline.kinds.pose.settings import PoseAugmentationSettings, PoseModelSettings, PoseSettings, PoseTargetSettings
from podline.recipes.durations import Duration
from podline.recipes.settings import OptimizerSettings, Recipe, ScheduleSettings

SIDE, PEOPLE = 64, 3

POSE = PoseSettings(
    side=SIDE,
    max_people=PEOPLE,
    model=PoseModelSettings(width=0.1, features=8, paf_stages=2, heatmap_stages=1, stage_width=8, stage_depth=1),
    targets=PoseTargetSettings(stride=16, joint_sigma=12, limb_sigma=12),
    augmentation=PoseAugmentationSettings(flip=True, rotation=20, smallest=0.8, largest=1.2, shift=0.1, contrast=0.2),
)
RECIPE = Recipe(
    name="tiny-pose",
    dataset="coco",
    task=POSE,
    batch_size=4,
    evaluation_batch_size=4,
    duration=Duration(steps=8),
    optimizer=OptimizerSettings(kind="adam"),
    schedule=ScheduleSettings(kind="constant", learning_rate=3e-3),
    ema_decay=0.9,
    evaluate_every=Duration(steps=4),
    summary_steps=2,
    checkpoint_steps=4,
    deterministic=True,
)


def drawn(count: int, seed: int, side: int = SIDE) -> dict[str, np.ndarray]:
    """Records of noise with bright squares where joints are: an image has nobody to ``PEOPLE`` people."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 80, (count, side, side, 3)).astype(np.uint8)
    keypoints = np.zeros((count, PEOPLE, len(COCO.joints), 3), np.float32)
    people = random.integers(0, PEOPLE + 1, count)
    for image, poses, there in zip(images, keypoints, people, strict=True):
        for pose in poses[:there]:
            pose[:, :2] = np.rint(random.uniform(4, side - 5, (len(COCO.joints), 2)))
            pose[:, 2] = random.integers(0, 3, len(COCO.joints))
            pose[pose[:, 2] == 0] = 0
            for joint, (x, y, _) in enumerate(pose.astype(int)):
                image[y - 1 : y + 2, x - 1 : x + 2] = 100 + 8 * joint
    ignored = np.zeros((count, side // 4, side // 4), np.uint8)
    ignored[::3, :4, :4] = 255
    return {
        "image": images,
        "keypoints": keypoints,
        "ignored": ignored,
        "image_id": np.arange(count)[:, None] + 1000 * (seed + 1),
        "size": np.full((count, 2), side),
        "people": people,
    }


def publish_poses(root: Path) -> Manifest:
    """Puts 18 and 6 examples, in shards of three, into a store; as ``datasets/coco/FINGERPRINT``."""
    splits = {"train": drawn(18, 0), "test": drawn(6, 1)}
    facts = {SKELETON: COCO.model_dump(mode="json")}
    return publish(root, "coco", (), splits, shard_records=3, kind="pose", facts=facts)
