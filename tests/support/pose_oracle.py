"""Networks that are right, wrong or blind by construction, and what judges them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from podline.base.progress import Reporter, silent
from podline.contract.case import Case
from podline.documents.manifest import Manifest
from podline.documents.skeleton import COCO
from podline.input.pipeline import MASK
from podline.kinds.pose.judging import FIELDS
from podline.kinds.pose.settings import PoseModelSettings, PoseSettings, PoseTargetSettings
from podline.kinds.pose.targets import pose_targets
from podline.recipes.settings import Recipe
from podline.stages.specs import EvaluateSpec
from podline.store.contract import Store

POSES = PoseSettings(
    side=128,
    model=PoseModelSettings(width=0.1, features=8, stage_width=8, stage_depth=1),
    targets=PoseTargetSettings(stride=8, joint_sigma=5.0, limb_sigma=5.0),
)
RECIPE = Recipe(name="p", dataset="coco_sample", task=POSES, batch_size=4)


def perfect(batches):
    """Answers that are the targets themselves, from the records' keypoints."""
    for number in range(batches.batches()):
        mask = batches.batch(number)[MASK] > 0
        positions = number * batches.batch_size + np.arange(mask.sum())
        ids = positions if batches.ids is None else batches.ids[positions]
        fields = batches.reader.gather(ids, [*FIELDS, "keypoints", "ignored"])
        drawn = pose_targets(fields["keypoints"], fields["ignored"], POSES.side, POSES.targets, COCO)
        yield (np.array(drawn.heatmaps), np.array(drawn.pafs)), fields


def nothing(batches):
    for (heatmaps, pafs), fields in perfect(batches):
        yield (np.zeros_like(heatmaps), np.zeros_like(pafs)), fields


def case_of(
    spec: EvaluateSpec, recipe: Recipe, store: Store, manifest: Manifest, reporter: Reporter | None = None
) -> Case:
    """What an evaluation is of, without models."""
    return Case(spec, recipe, None, None, tf.distribute.get_strategy(), store, manifest, reporter or silent())
