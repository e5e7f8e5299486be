"""Lists Podline's kinds of task, data sets and recipes as ``module:name``, which are imported on demand."""

KINDS = {
    "classification": "podline.kinds.classification.facts:CLASSIFICATION",
    "labels": "podline.kinds.labels.facts:LABELS",
    "pose": "podline.kinds.pose.facts:POSE",
}
DATA_SETS = {
    "cifar10": "podline.kinds.classification.data_sets:CIFAR10",
    "cifar100": "podline.kinds.classification.data_sets:CIFAR100",
    "mnist": "podline.kinds.classification.data_sets:MNIST",
    "sample": "podline.kinds.classification.data_sets:SAMPLE",
    "images": "podline.kinds.classification.data_sets:IMAGES",
    "labels": "podline.kinds.labels.data_sets:LABELS",
    "coco": "podline.kinds.pose.data_sets:COCO",
    "coco_sample": "podline.kinds.pose.data_sets:COCO_SAMPLE",
    "keypoints": "podline.kinds.pose.data_sets:KEYPOINTS",
}
# The docstring of a recipe's module has the command and the expected result.
RECIPES = {
    "cifar10": "podline.kinds.classification.recipes.cifar10:RECIPE",
    "cifar10-small": "podline.kinds.classification.recipes.cifar10_small:RECIPE",
    "cifar10-medium": "podline.kinds.classification.recipes.cifar10_medium:RECIPE",
    "cifar10-large": "podline.kinds.classification.recipes.cifar10_large:RECIPE",
    "cifar100": "podline.kinds.classification.recipes.cifar100:RECIPE",
    "mnist": "podline.kinds.classification.recipes.mnist:RECIPE",
    "sample": "podline.kinds.classification.recipes.sample:RECIPE",
    "coco_pose": "podline.kinds.pose.recipes.coco_pose:RECIPE",
    "keypoints": "podline.kinds.pose.recipes.keypoints:RECIPE",
    "images": "podline.kinds.classification.recipes.images:RECIPE",
    "labels": "podline.kinds.labels.recipes.labels:RECIPE",
}
