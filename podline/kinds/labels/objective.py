"""The objective of several labels: sigmoid cross-entropy, summed over the labels."""

# pyright: standard
from __future__ import annotations

import tensorflow as tf

from podline.contract.objective import Batch
from podline.kinds.classification.objective import ImageObjective, focal
from podline.kinds.labels.records import LABELS


class LabelsObjective(ImageObjective):
    """The objective of any number of labels per image; see :class:`ImageObjective`.

    ``accuracy`` is the share of correct answers over all labels, at a probability of one half.
    """

    target = LABELS

    @staticmethod
    def cross_entropy(labels: tf.Tensor, logits: tf.Tensor, smoothing: float = 0.0, gamma: float = 0.0) -> tf.Tensor:
        """Return the sum of the cross-entropies of an example's labels, in nats.

        With a sum, a logit's gradient is as large as that of softmax cross-entropy, so the same learning rates suit.

        Args:
            labels: 0 or 1, any integer type, (n, labels).
            logits: float32, (n, labels).
            smoothing: share of the target that is spread evenly over yes and no.
            gamma: exponent of the focal loss of each label.

        Returns:
            float32, (n,).
        """
        targets = tf.cast(labels, tf.float32) * (1 - smoothing) + smoothing / 2
        entropies = tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits)
        return tf.reduce_sum(focal(entropies, gamma), axis=-1)

    def measures(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """Return ``correct``: the share of an example's labels that are predicted correctly, float32, (n,)."""
        right = (outputs > 0) == (batch[LABELS] > 0)
        return {"correct": tf.reduce_mean(tf.cast(right, tf.float32), axis=-1)}
