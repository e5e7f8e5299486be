"""The data sets of people with joints, and of other objects with keypoints."""

from dataclasses import replace

from podline.recipes.datasets import DataSet

COCO = DataSet(
    "coco",
    "podline.data.people.source:open_people",
    kind="pose",
    version=1,
    settings="podline.data.people.settings:CocoSettings",
)
COCO_SAMPLE = replace(
    COCO, name="coco_sample", draw="podline.data.people.sample:write_coco_sample", drawn="annotations"
)
KEYPOINTS = replace(COCO, name="keypoints", settings="podline.data.people.settings:KeypointSettings", several=True)
