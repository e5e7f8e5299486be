"""Figures about people and joints, for evaluations of pose networks."""

from __future__ import annotations

from podline.base.frozen import Frozen
from podline.documents.metric import Metric

PCK = "pck"
"""The measure of joints; see :mod:`podline.kinds.pose.pck`."""


class JointFigures(Frozen):
    """The figures of one joint over all annotated people.

    Attributes:
        joint: its name.
        labelled: number of labels.
        in_found: number of labels in people that were found.
        close: number of labels with a similarity of at least 0.5; people that were not found do not count.
        similarity: mean over ``in_found``; 0 without any.
        distance: median over ``in_found``, as a share of the root of the person's area; joints that the found person
            lacks are left out; None without any.
        pck: its PCK; None without a label that counts.
    """

    joint: str
    labelled: int
    in_found: int
    close: int
    similarity: float
    distance: float | None
    pck: Metric | None = None


class ThresholdFigures(Frozen):
    """Counts at OKS 0.5, without results below a score.

    Attributes:
        score: the threshold.
        kept: number of results with at least this score.
        right: number of these that match an annotated person, each person once.
        people: number of annotated people, see :class:`OksEvaluation`.
    """

    score: float
    kept: int
    right: int
    people: int

    @property
    def precision(self) -> float:
        """The share of kept results that is right; 0 without results."""
        return self.right / self.kept if self.kept else 0.0

    @property
    def recall(self) -> float:
        """The share of people that is found; 0 without people."""
        return self.right / self.people if self.people else 0.0
