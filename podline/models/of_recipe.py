"""The model of a recipe, be it for classes or for poses."""

from __future__ import annotations

import keras

from podline.documents.manifest import Manifest
from podline.models.build import build_model
from podline.models.pose_build import build_pose_model
from podline.recipes.settings import Recipe


def model_of(recipe: Recipe, manifest: Manifest) -> keras.Model:
    """A recipe's model for a data set, with fresh weights; pixels are normalised by the training split.

    Raises:
        SettingsError: the recipe's settings and the images' shape do not fit.
    """
    (height, width, channels), split = manifest.image_shape, manifest.split("train")
    if recipe.pose is None:
        shape, classes = (height, width, channels), len(manifest.class_names)
        return build_model(recipe.model, shape, classes, split.mean, split.std, recipe.seed)
    stride = recipe.pose.targets.stride
    return build_pose_model(recipe.pose.model, recipe.pose.side, stride, split.mean, split.std, recipe.seed)
