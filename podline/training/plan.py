"""A training run in numbers: what follows from a recipe and a data set. Nothing here needs TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podline.data.manifest import Manifest
from podline.data.order import TrainingOrder, held_out
from podline.errors import ArtifactError, SettingsError
from podline.input.augmentation import augment
from podline.recipes.settings import Recipe
from podline.training.schedules import Schedule, build_schedule

TRAINING_SPLIT = "train"
EVALUATION_SPLIT = "test"
# What is held out of the training split; it is no split of the data set.
VALIDATION = "validation"


@dataclass(frozen=True)
class Plan:
    """A run in steps.

    Attributes:
        order: which examples make which batch.
        total_steps: the length of the run.
        evaluation_steps: there is an evaluation every so many steps; None is only at the end.
        schedule: the learning rate.
        validation: ids of the training split that are evaluated and not trained on, int64 (n,); if there are none, the
            test split is evaluated.
    """

    order: TrainingOrder
    total_steps: int
    evaluation_steps: int | None
    schedule: Schedule
    validation: npt.NDArray[np.int64]

    def epoch(self, step: int) -> float:
        """Passes over the data after so many steps."""
        return step / self.order.steps_per_epoch


def plan_training(recipe: Recipe, manifest: Manifest, first_epoch: int = 0) -> Plan:
    """The plan of a recipe on a data set.

    Args:
        recipe: what is trained, and how long.
        manifest: of the data set.
        first_epoch: see :class:`podline.data.order.TrainingOrder`.

    Raises:
        SettingsError: a batch is larger than the split, or a duration, the schedule or the augmentation does not fit.
        ArtifactError: the manifest counts labels that it has no class for.
    """
    for split in (manifest.split(TRAINING_SPLIT), manifest.split(EVALUATION_SPLIT)):
        _require_labels_in_range(manifest, split.name)
    examples = manifest.split(TRAINING_SPLIT).records
    validation = held_out(recipe.seed, examples, recipe.validation_share)
    if recipe.validation_share and not len(validation):
        raise SettingsError(
            f"validation_share={recipe.validation_share} vs {examples} examples in the training split of "
            f"{manifest.dataset}: that is not one example; give a larger share"
        )
    left = examples - len(validation)
    if recipe.batch_size > left:
        without = f" ({len(validation)} are held out for validation)" if len(validation) else ""
        raise SettingsError(
            f"batch_size={recipe.batch_size} vs {left} examples in the training split of {manifest.dataset}{without}: "
            "a batch cannot be larger than the split; choose a smaller batch_size"
        )
    # What augmentation cannot do with images of this shape it says at the first of them, which this one stands for.
    blank = np.zeros((1, *manifest.image_shape), np.uint8)
    augment(blank, np.zeros(1, np.int64), recipe.augmentation, recipe.seed, 0, np.zeros(blank.shape[-1], np.uint8))
    order = TrainingOrder(examples, recipe.batch_size, recipe.seed, validation, first_epoch)
    total = recipe.duration.in_steps(order.steps_per_epoch, recipe.batch_size)
    if not total:
        raise SettingsError("a duration of 0 steps trains nothing; give at least one step")
    schedule = build_schedule(recipe.schedule, total, order.steps_per_epoch, recipe.batch_size)
    every = recipe.evaluate_every
    evaluation_steps = every.in_steps(order.steps_per_epoch, recipe.batch_size) if every else None
    if recipe.decides_by and not evaluation_steps:
        raise SettingsError(
            f"{recipe.decides_by} vs evaluate_every of none: it decides by evaluations during training; "
            "give evaluate_every.epochs=1"
        )
    return Plan(order, total, evaluation_steps or None, schedule, validation)


def _require_labels_in_range(manifest: Manifest, split: str) -> None:
    counts, classes = manifest.split(split).class_counts, len(manifest.class_names)
    beyond = [label for label, count in enumerate(counts) if label >= classes and count]
    if beyond:
        raise ArtifactError(
            f"split {split} of {manifest.dataset}/{manifest.fingerprint} has label {beyond[0]} vs {classes} classes, "
            f"labels 0 to {classes - 1}; convert the data again"
        )
