"""The loss of several labels, by its definition."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from podline.kinds.labels.objective import LabelsObjective

LOGITS = np.array([[2.0, -1.0, 0.5], [-3.0, 0.0, 4.0]], np.float32)
LABELS = np.array([[1, 0, 0], [0, 0, 1]], np.uint8)


def batch() -> dict[str, tf.Tensor]:
    """Two examples with three labels."""
    return {"labels": tf.constant(LABELS)}


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_cross_entropies_of_the_labels_are_added_up(smoothing: float) -> None:
    shares, targets = 1 / (1 + np.exp(-LOGITS)), LABELS * (1 - smoothing) + smoothing / 2
    expected = -(targets * np.log(shares) + (1 - targets) * np.log(1 - shares)).sum(axis=1)
    objective = LabelsObjective(smoothing)
    assert objective.fields == ("image", "labels")
    [(name, losses)] = objective.terms(batch(), tf.constant(LOGITS)).items()
    assert name == "cross_entropy"
    assert losses.numpy() == pytest.approx(expected, rel=1e-6)
    hard = LabelsObjective().terms(batch(), tf.constant(LOGITS))[name].numpy()
    assert objective.evaluated.terms(batch(), tf.constant(LOGITS))[name].numpy() == pytest.approx(hard)


def test_accuracy_is_the_share_of_right_answers() -> None:
    correct = LabelsObjective().measures(batch(), tf.constant(LOGITS))["correct"].numpy()
    assert correct == pytest.approx([2 / 3, 1.0])
    assert LabelsObjective().figures({"correct": float(correct.sum())}, 2) == {"accuracy": pytest.approx(5 / 6)}
