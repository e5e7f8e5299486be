"""A model's answers for each example, in the shape and type of the targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from podline.contract.per_example import PerExample


@dataclass(frozen=True)
class Answered(PerExample):
    """One entry per example, in the order of the split; ``labels`` are the targets.

    Attributes:
        answers: the model's answers, in the shape and type of the targets, (n, …).
    """

    file, holds, decides = "answers.npz", "answers", "answers"

    answers: npt.NDArray[Any]
