"""Chooses, by the number of images, a training's validation part and the interval of its evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable

from podline.documents.manifest import TEST, TRAIN, VALIDATION, Manifest
from podline.plurals import plural
from podline.recipes.durations import Duration
from podline.recipes.epochs import Epochs
from podline.recipes.settings import Recipe

_STEP = 3  # a step takes about as long as this number of evaluations of its images
# Limits of the probe: number of images, and number of pixels, since the outputs of all layers may be in memory at once.
_PROBED, _PROBED_PIXELS = 64, 2**19
_FEWEST = 5  # evaluations that even a short training has


def with_validation(recipe: Recipe, manifest: Manifest, tell: Callable[[str], object]) -> Recipe:
    """Return the recipe without its validation part and early stop if ``fit`` finds the images too few.

    A validation split of the data set's own is never too small.

    Args:
        recipe: any recipe with a ``fit``.
        manifest: the manifest of the data set.
        tell: called with the reason.
    """
    least = recipe.fit.least_validation if recipe.fit else 0
    images, own = manifest.split(TRAIN).records, manifest.has_validation
    part, why = 0 if own else round(recipe.validation_share * images), ""
    if not recipe.evaluates:
        why = "there are no evaluations on the way"
    elif not own and recipe.further:
        why = "the run that is trained further may have learned any of them"
    elif not own and part < least:
        why = f"{part:,} of {plural(images, 'image')} would be too few to decide by, {least:,} are enough"
    if not least or not why:
        return recipe
    if part:
        tell(f"no training images are held out, and the last weights are the result: {why}")
    return recipe.changed(validation_share=0.0, early_stop=None)


def with_rarer_evaluations(recipe: Recipe, manifest: Manifest, share: float) -> Recipe:
    """Return the recipe with evaluations that take at most about a share of the training's time.

    The interval depends on numbers of images only, so that a repeated training has the same one.

    Args:
        recipe: a recipe that fits the data set.
        manifest: the manifest of the data set.
        share: the share; 0 leaves the interval as it is.
    """
    if not share or recipe.evaluate_every is None or not recipe.evaluates:
        return recipe
    images = manifest.split(TRAIN).records
    held_out = 0 if manifest.has_validation else round(recipe.validation_share * images)
    evaluated = held_out or manifest.split(VALIDATION if manifest.has_validation else TEST).records
    epochs = Epochs(images - held_out, recipe.batch_size)
    least = math.ceil((evaluated + probed(manifest)) / (_STEP * share * recipe.batch_size))
    least = min(least, recipe.duration.in_steps(epochs) // _FEWEST)
    if least <= recipe.evaluate_every.in_steps(epochs):
        return recipe
    return recipe.changed(evaluate_every=Duration(steps=least))


def probed(manifest: Manifest) -> int:
    """Return the number of test images by which each evaluation also measures the layers."""
    height, width, _ = manifest.image_shape
    return min(manifest.split(TEST).records, _PROBED, max(_PROBED_PIXELS // (height * width), 2))
