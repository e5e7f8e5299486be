"""Losses of a classifier: functions of a recipe's loss settings that give a function of labels and logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from podline.recipes.settings import LossSettings

Loss = Callable[[Any, Any], Any]


def cross_entropy_of(_settings: LossSettings) -> Loss:
    """Return cross-entropy as it is evaluated, without smoothing."""
    return cross_entropy


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
