"""A classifier's objective: cross-entropy, focal loss or a loss of an installed package, and the accuracy."""

# pyright: standard
from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.base.frozen import JsonObject
from podline.contract.objective import Batch, Objective
from podline.data.records import IMAGE, LABEL
from podline.input.mixing import SHARE, partners_field
from podline.models.layer_checks import require_logits
from podline.recipes.parts import LOSSES
from podline.recipes.settings import LossSettings

Loss = Callable[[Any, Any], Any]


class ImageObjective(Objective):
    """The objective of a model with one logit per class.

    Attributes:
        target: the record field that the logits are compared with.
        settings: the loss settings.
        smoothing: label smoothing of ``cross_entropy`` in training.
    """

    target: ClassVar[str]
    measured = ("correct",)

    def __init__(self, smoothing: float = 0.0, settings: LossSettings = LossSettings()) -> None:  # noqa: B008 (frozen)
        self.fields, self.settings, self.smoothing = (IMAGE, self.target), settings, smoothing
        gamma = settings.gamma if settings.kind == "focal" else 0.0
        self._loss: Loss = functools.partial(self.cross_entropy, smoothing=smoothing, gamma=gamma)
        if settings.kind not in LOSSES.shipped or settings.options:
            installed: Any = LOSSES.make(settings, settings)
            self._loss = installed

    @staticmethod
    @abstractmethod
    def cross_entropy(labels: tf.Tensor, logits: tf.Tensor, smoothing: float = 0.0, gamma: float = 0.0) -> tf.Tensor:
        """Return the cross-entropy of each example, in nats, float32, (n,).

        Args:
            labels: the targets, (n, …).
            logits: float32, (n, classes).
            smoothing: share of the target that is spread evenly over all answers.
            gamma: exponent of the focal loss, see :func:`focal`; 0 gives cross-entropy.
        """

    @property
    def evaluated(self) -> Self:
        """Return the objective for evaluations: without label smoothing and class weights."""
        return type(self)(settings=self.settings)

    def terms(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """Return the loss of each example by the loss's name, float32 (n,); ``cross_entropy`` is in nats.

        Args:
            batch: a batch with the target, (n, …); for mixed images (:mod:`podline.input.mixing`),
                the loss is the sum over both targets, weighted by their shares.
            outputs: logits, float32, (n, classes).

        Raises:
            SettingsError: a package's loss fails or does not return one number per example, or the model's outputs are
                probabilities.
        """
        require_logits(outputs)
        losses = self.losses(batch[self.target], outputs)
        if SHARE in batch:
            share, others = batch[SHARE], self.losses(batch[partners_field(self.target)], outputs)
            losses = share * losses + (1 - share) * others
        return {self.settings.kind: losses}

    def losses(self, targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example, float32 (n,), for targets (n, …) and outputs (n, classes)."""
        name = self.settings.kind
        with entry_points.explained(LOSSES.title(name), tf.errors.OpError):
            losses = tf.cast(self._loss(targets, outputs), tf.float32)
        if losses.shape.rank != 1:
            raise SettingsError(f"loss {name} gives shape {losses.shape}, expected (n,): return one number per example")
        return losses

    @abstractmethod
    def measures(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """Return ``correct``, the share of an example's correct answers: float32, (n,)."""

    def figures(self, sums: Mapping[str, float], examples: int) -> JsonObject:
        """Return ``accuracy``, the mean of ``correct``."""
        return {"accuracy": sums["correct"] / examples}

    def headline(self, sums: Mapping[str, float], examples: int) -> dict[str, float]:
        """Return ``accuracy`` for the progress display."""
        return self.figures(sums, examples)


class ClassificationObjective(ImageObjective):
    """The objective of one class per image.

    Attributes:
        weights: factors for the loss of each class's examples, float32, (classes,); None for a factor of 1.
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
        """Return the cross-entropy of each example, in nats, times the :func:`focal` factor: float32 (n,)."""
        return focal(cross_entropy(labels, logits, smoothing), gamma)

    def losses(self, targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Return the weighted loss of each example; see :meth:`ImageObjective.losses`."""
        losses = super().losses(targets, outputs)
        if self.weights is None:
            return losses
        # An invalid label has the weight 0 and keeps the loss NaN; a lookup would fail on some devices.
        return losses * tf.linalg.matvec(tf.one_hot(targets, len(self.weights)), tf.constant(self.weights))

    def measures(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """Return ``correct``: 1 if the largest logit is the label's, else 0."""
        guesses = tf.argmax(outputs, axis=-1, output_type=tf.int32)
        return {"correct": tf.cast(guesses == tf.cast(batch[LABEL], tf.int32), tf.float32)}


def focal(entropies: tf.Tensor, gamma: float) -> tf.Tensor:
    """Multiply cross-entropies by (1 - probability of the correct answer) to the power ``gamma``.

    Lin et al.: "Focal Loss for Dense Object Detection", ICCV 2017, without its class weights.
    ``keras.losses.CategoricalFocalCrossentropy`` clips probabilities, so very wrong answers have no gradient.

    Args:
        entropies: cross-entropies in nats, float32, of any shape.
        gamma: exponent; 0 returns ``entropies`` unchanged.
    """
    if not gamma:
        return entropies
    # pow(0, gamma) has no finite gradient for gamma below 1.
    return tf.maximum(-tf.math.expm1(-entropies), 1e-7) ** gamma * entropies


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor, smoothing: float = 0.0) -> tf.Tensor:
    """Compute the cross-entropy of each example, in nats.

    Args:
        labels: class indices, int32 or int64, shape (n,).
        logits: float32, shape (n, classes).
        smoothing: share of the target that is spread evenly over all classes. Szegedy et al.: "Rethinking the Inception
            Architecture", CVPR 2016, section 7.

    Returns:
        float32, shape (n,); NaN for a label outside the logits, on every device and with any smoothing. TensorFlow
        itself would raise an error, return NaN, or treat the label as missing.
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
