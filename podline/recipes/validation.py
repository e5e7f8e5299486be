"""Decides, from the number of images, whether images are held out for validation and how often to evaluate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from podline.base.errors import SettingsError
from podline.base.plurals import plural
from podline.documents.manifest import TEST, TRAINING, VALIDATION, Manifest
from podline.recipes.durations import Duration
from podline.recipes.epochs import Epochs
from podline.recipes.settings import Recipe

# A training step takes about as long as this number of evaluations of its images; if only upper layers train, the
# second number.
_STEP, _UPPER_STEP = 3, 2
# Limits of the probe: number of images, and number of pixels, since the outputs of all layers may be in memory at once.
_PROBED, _PROBED_PIXELS = 64, 2**19
_FEWEST = 4  # least number of evaluations of a training


def with_validation(recipe: Recipe, manifest: Manifest, tell: Callable[[str], object]) -> Recipe:
    """Return the recipe, without held-out images and early stop if they cannot serve decisions as ``fit`` requires.

    That is so if there are too few, if there are no evaluations during training, or if an earlier run may have learned
    them.

    Args:
        recipe: any recipe.
        manifest: the manifest of the data set; a validation split replaces the held-out images.
        tell: is called with the reason, if images would have been evaluated.

    Raises:
        SettingsError: there are too few images for a plateau or for annealing.
    """
    least = recipe.fit.least_validation if recipe.fit else 0
    images, own = manifest.split(TRAINING).records, manifest.has_validation
    part = manifest.split(VALIDATION).records if own else round(recipe.validation_share * images)
    why = ""
    if not recipe.evaluates:
        why = "there are no evaluations during training"
    elif not own and recipe.further:
        why = "the run that is trained further may have learned any of the images"
    elif part < least:
        where = "images of the validation split" if own else f"of {plural(images, 'image')}"
        why = f"{part:,} {where} would be too few for decisions, {least:,} are enough"
    if not least or not why:
        return recipe
    if recipe.schedule.kind == "plateau" or recipe.annealing:
        decider = "schedule.kind=plateau" if recipe.schedule.kind == "plateau" else "annealing"
        raise SettingsError(f"{decider} needs held-out examples, and {why}: give another schedule, or more images")
    if part:
        held = "" if own else "no training images are held out, and "
        tell(f"{held}the last weights are the result: {why}")
    return recipe.changed(validation_share=0.0, early_stop=None)


def with_rarer_evaluations(recipe: Recipe, manifest: Manifest, share: float) -> Recipe:
    """Return the recipe with rarer evaluations, if they would take more than about a share of the training's time.

    At least :data:`_FEWEST` evaluations remain. The interval follows from recipe and manifest, not from measured times,
    so that a repeated training has the same interval.

    Args:
        recipe: a recipe that fits the data set.
        manifest: the manifest of the data set.
        share: the share of the time; with 0 the interval does not change.
    """
    if not share or recipe.evaluate_every is None or not recipe.evaluates:
        return recipe
    images = manifest.split(TRAINING).records
    held_out = 0 if manifest.has_validation else round(recipe.validation_share * images)
    evaluated = held_out or manifest.split(VALIDATION if manifest.has_validation else TEST).records
    epochs = Epochs(images - held_out, recipe.batch_size)
    steps, every = recipe.duration.in_steps(epochs), recipe.evaluate_every.in_steps(epochs)
    work = share * _work(recipe, images - held_out, epochs.epoch_at(steps))
    distance = math.ceil(steps / max(int(work / (evaluated + probed(manifest))), _FEWEST))
    return recipe if distance <= every else recipe.changed(evaluate_every=Duration(steps=distance))


def _work(recipe: Recipe, images: int, epochs: float) -> float:
    """Return the number of images whose evaluation takes as long as a training."""
    found = 0.0
    phases = [(begins, phase) for begins, phase in recipe.by_phase if begins < epochs]
    for (begins, phase), (ends, _) in itertools.pairwise([*phases, (epochs, recipe)]):
        seen = (ends - begins) * images
        if phase.trainable_layers == ("",):
            found += _STEP * seen
        elif phase.image_augmentation.views:
            found += min(
                seen, phase.image_augmentation.views * images
            )  # the frozen layers, once for each image and view
        else:
            found += _UPPER_STEP * seen
    return found


def probed(manifest: Manifest) -> int:
    """Return the number of test images for which each evaluation during training measures the outputs of all layers."""
    height, width, _ = manifest.image_shape
    return min(manifest.split(TEST).records, _PROBED, max(_PROBED_PIXELS // (height * width), 2))
