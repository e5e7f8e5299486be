"""What a classifier is taken to have said, for tests that start after its evaluation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from podline.kinds.classification.guesses import Guesses


def guesses_of(labels: npt.NDArray[np.int64], predictions: npt.NDArray[np.int64], sure: float = 0.9) -> Guesses:
    """Return guesses of one confidence; the label comes second where the prediction is wrong."""
    count, wrong = len(labels), labels != predictions
    losses = -np.log(np.where(wrong, (1 - sure) / 2 + 1e-9, sure))
    return Guesses(
        labels, predictions, wrong.astype(np.int64), losses, np.full(count, sure), np.zeros((count, 0), np.float16)
    )
