"""The loss of a classifier."""

from __future__ import annotations

import tensorflow as tf


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor, smoothing: float = 0.0) -> tf.Tensor:
    """Cross-entropy of each example, in nats.

    Args:
        labels: class indices, any integer type, shape (n,).
        logits: float32, shape (n, classes).
        smoothing: share of the target that is spread evenly over all classes. Szegedy et al.: "Rethinking the Inception
            Architecture", CVPR 2016, section 7.

    Returns:
        float32, shape (n,).
    """
    if not smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    classes = int(logits.shape[-1] or 0)
    targets = tf.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes
    return tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits)
