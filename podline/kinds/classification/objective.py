"""A classifier's objective: cross-entropy, focal or an installed loss, and the accuracy."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline import entry_points
from podline.documents.manifest import Manifest
from podline.errors import SettingsError
from podline.frozen import JsonObject
from podline.input.mixing import SHARE, partners_field
from podline.kinds.classification.settings import ClassificationSettings
from podline.kinds.classification.weights import class_weights
from podline.recipes.parts import LOSSES
from podline.recipes.settings import LossSettings, Recipe
from podline.training.objective import IMAGE, LABEL, Batch, Objective

Loss = Callable[[Any, Any], Any]


class ImageObjective(Objective):
    """An image answered with a logit for each class.

    Attributes:
        target: the field of a record that the answer is compared with.
        settings: which loss.
        smoothing: of ``cross_entropy`` in training.
    """

    target: ClassVar[str]
    measured = ("correct",)

    def __init__(self, smoothing: float = 0.0, settings: LossSettings = LossSettings()) -> None:  # noqa: B008 (frozen)
        self.fields, self.settings, self.smoothing = (IMAGE, self.target), settings, smoothing
        gamma = settings.gamma if settings.kind == "focal" else 0.0
        self._loss: Loss = functools.partial(self.cross_entropy, smoothing=smoothing, gamma=gamma)
        if settings.kind not in LOSSES.shipped or settings.options:
            self._loss = LOSSES.make(settings, settings)

    @staticmethod
    @abstractmethod
    def cross_entropy(labels: tf.Tensor, logits: tf.Tensor, smoothing: float = 0.0, gamma: float = 0.0) -> tf.Tensor:
        """Return the cross-entropy of each example, in nats, float32, (n,).

        Args:
            labels: the target, (n, …).
            logits: float32, (n, classes).
            smoothing: share of the target that is spread evenly over all answers.
            gamma: of the focal loss, see :func:`focal`; 0 is cross-entropy.
        """

    @property
    def evaluated(self) -> Self:
        """Return the same without smoothing and weights."""
        return type(self)(settings=self.settings)

    def terms(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """Return the loss by its name; ``cross_entropy`` is in nats.

        Args:
            batch: with the target, any integer type, (n, …); of a mixed one (:mod:`podline.input.mixing`), it is the
                loss of both targets by their shares.
            outputs: logits, float32, (n, classes).

        Raises:
            SettingsError: an installed loss fails, or gives no number for each example.
        """
        losses = self.losses(batch[self.target], outputs)
        if SHARE in batch:
            share, others = batch[SHARE], self.losses(batch[partners_field(self.target)], outputs)
            losses = share * losses + (1 - share) * others
        return {self.settings.kind: losses}

    def losses(self, targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example for some targets, float32, (n,); see :meth:`terms`."""
        name = self.settings.kind
        try:
            losses = tf.cast(self._loss(targets, outputs), tf.float32)
        except tf.errors.OpError:
            raise
        except Exception as error:
            raise SettingsError(f"loss {name}: {entry_points.reason(error)}") from error
        if losses.shape.rank != 1:
            raise SettingsError(f"loss {name} gives shape {losses.shape} vs (n,): give a number for each example")
        return losses

    @abstractmethod
    def measures(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """Return ``correct``, the share of an example's answers that are right: float32, (n,)."""

    def figures(self, sums: Mapping[str, float], examples: int) -> JsonObject:
        """``accuracy``."""
        return {"accuracy": sums["correct"] / examples}

    def headline(self, sums: Mapping[str, float], examples: int) -> dict[str, float]:
        """Return the accuracy."""
        return self.figures(sums, examples)


class Classification(ImageObjective):
    """One class for each image.

    Attributes:
        weights: what the loss of each class's examples is multiplied by, float32, (classes,); None is by 1.
    """

    target = LABEL

    def __init__(
        self,
        smoothing: float = 0.0,
        settings: LossSettings = LossSettings(),  # noqa: B008 (frozen)
        weights: npt.NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(smoothing, settings)
        self.weights = weights

    @staticmethod
    def cross_entropy(labels: tf.Tensor, logits: tf.Tensor, smoothing: float = 0.0, gamma: float = 0.0) -> tf.Tensor:
        """See :func:`cross_entropy` and :func:`focal`."""
        return focal(cross_entropy(labels, logits, smoothing), gamma)

    def losses(self, targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Return the weighted loss of each example; see :meth:`ImageObjective.losses`."""
        losses = super().losses(targets, outputs)
        if self.weights is None:
            return losses
        # A label that is no class has the weight 0, and keeps the loss NaN; looking it up would fail on some devices.
        return losses * tf.linalg.matvec(tf.one_hot(targets, len(self.weights)), tf.constant(self.weights))

    def measures(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """``correct``: 1 where the largest logit is the label's, else 0."""
        guesses = tf.argmax(outputs, axis=-1, output_type=tf.int32)
        return {"correct": tf.cast(guesses == tf.cast(batch[LABEL], tf.int32), tf.float32)}


def class_objective(recipe: Recipe, manifest: Manifest) -> Classification:
    """Return what a recipe for classes trains for."""
    smoothing = ClassificationSettings.of(recipe).label_smoothing
    return Classification(smoothing, recipe.loss, class_weights(recipe, manifest))


def focal(entropies: tf.Tensor, gamma: float) -> tf.Tensor:
    """Return cross-entropies times (1 - probability of the right answer) to the power ``gamma``.

    Lin et al.: "Focal Loss for Dense Object Detection", ICCV 2017, without its weights of classes.
    ``keras.losses.CategoricalFocalCrossentropy`` clips probabilities, so an answer that is far off has no gradient.

    Args:
        entropies: in nats, float32, of any shape.
        gamma: 0 returns them as they are.
    """
    if not gamma:
        return entropies
    # The power of 0 has no finite gradient below gamma = 1.
    return tf.maximum(-tf.math.expm1(-entropies), 1e-7) ** gamma * entropies


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor, smoothing: float = 0.0) -> tf.Tensor:
    """Cross-entropy of each example, in nats.

    Args:
        labels: class indices, any integer type, shape (n,).
        logits: float32, shape (n, classes).
        smoothing: share of the target that is spread evenly over all classes. Szegedy et al.: "Rethinking the Inception
            Architecture", CVPR 2016, section 7.

    Returns:
        float32, shape (n,); NaN for a label that no logit stands for, on every kind of device and with any smoothing.
        TensorFlow itself would raise an error, or give NaN, or take a label that does not exist for one that is not
        known.
    """
    classes = int(logits.shape[-1] or 0)
    known = (labels >= 0) & (labels < classes)
    safe = tf.where(known, labels, tf.zeros_like(labels))
    if smoothing:
        targets = tf.one_hot(safe, classes) * (1 - smoothing) + smoothing / classes
        losses = tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    else:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=safe, logits=logits)
    return tf.where(known, losses, float("nan"))
