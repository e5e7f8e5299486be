"""Figures about people and joints, as evaluations of pose networks record them."""

from __future__ import annotations

from podline.frozen import Frozen


class JointFigures(Frozen):
    """One joint over all people in truth.

    Attributes:
        joint: its name.
        labelled: how often it is labelled.
        in_found: how often it is labelled in a person that was found.
        close: how often its similarity is at least 0.5, nothing counted for people that were not found.
        similarity: mean over ``in_found``; 0 if there is none.
        distance: median over ``in_found``, as a share of the root of the person's area; joints that the found person
            lacks are left out; None if there is none.
    """

    joint: str
    labelled: int
    in_found: int
    close: int
    similarity: float
    distance: float | None


class SizeFigures(Frozen):
    """People of one size: ``low`` to ``high`` is the root of their area in pixels; ``found`` of ``people`` were found.

    ``ap`` and ``ar`` are as in :class:`OksFigures`.
    """

    low: float
    high: float
    people: int
    found: int
    ap: float
    ar: float


class ThresholdFigures(Frozen):
    """Counts at OKS 0.5 without results below a score.

    Attributes:
        score: the threshold.
        kept: results with at least this score.
        right: how many of them are people of the truth, each counted once.
        people: in truth, see :class:`OksEvaluation`.
    """

    score: float
    kept: int
    right: int
    people: int

    @property
    def precision(self) -> float:
        """The share of the results kept that is right; 0 where none is kept."""
        return self.right / self.kept if self.kept else 0.0

    @property
    def recall(self) -> float:
        """The share of people found; 0 if there are none."""
        return self.right / self.people if self.people else 0.0
