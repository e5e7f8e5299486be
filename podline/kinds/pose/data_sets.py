"""The data sets of people with joints, and of other objects with keypoints."""

from dataclasses import replace

from podline.recipes.datasets import DataSet

COCO = DataSet(
    "coco",
    "podline.data.sources.coco:open_people",
    kind="pose",
    version=1,
    settings="podline.data.sources.coco_settings:CocoSettings",
)
COCO_SAMPLE = replace(
    COCO, name="coco_sample", draw="podline.data.sources.coco_sample:write_coco_sample", drawn="annotations"
)
KEYPOINTS = replace(
    COCO,
    name="keypoints",
    open="podline.data.sources.keypoints:open_keypoints",
    settings="podline.data.sources.coco_settings:KeypointSettings",
    several=True,
)
