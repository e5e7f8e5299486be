"""Figures about joints, people and single images, for evaluations of pose networks."""

from __future__ import annotations

from podline.base.frozen import Frozen
from podline.documents.metric import Metric

PCK = "pck"
"""The name of the share of joints that are predicted closely; see :mod:`podline.kinds.pose.pck`."""


class JointFigures(Frozen):
    """The figures of one joint over all annotated people.

    Attributes:
        joint: its name.
        labelled: number of people in whom the joint is labelled.
        in_found: number of these people that were detected.
        close: number of detected people whose predicted joint has a similarity of at least 0.5 to the label.
        similarity: mean similarity over ``in_found``; 0 without any.
        distance: median distance over ``in_found``, as a share of the root of the person's area, without detected
            people that lack the joint; None without any.
        pck: the PCK of the joint; None without a label that counts.
    """

    joint: str
    labelled: int
    in_found: int
    close: int
    similarity: float
    distance: float | None
    pck: Metric | None = None


class ThresholdFigures(Frozen):
    """Counts of detected people at OKS 0.5, from a score threshold on.

    Attributes:
        score: the threshold.
        kept: number of detected people with at least this score.
        right: number of kept results that match an annotated person; each person is matched once.
        people: number of annotated people with a labelled joint, without crowds.
    """

    score: float
    kept: int
    right: int
    people: int

    @property
    def precision(self) -> float:
        """The share of kept results that match a person; 0 without results."""
        return self.right / self.kept if self.kept else 0.0

    @property
    def recall(self) -> float:
        """The share of annotated people that are found; 0 without people."""
        return self.right / self.people if self.people else 0.0


class PeopleFigures(Frozen):
    """The figures of one image with labelled people.

    Attributes:
        image_id: COCO's image id.
        people: number of labelled people.
        found: number of people found, at OKS 0.5.
        false_alarms: number of results above the score threshold that match no person.
        quality: the sum of the OKS of found people, divided by ``people + false_alarms``: 1 is perfect.
    """

    image_id: int
    people: int
    found: int
    false_alarms: int
    quality: float


class Ranked(Frozen):
    """The best, median and worst images; no image is in two of these groups.

    Among equally good or equally bad images, those with more people come first.
    """

    best: tuple[PeopleFigures, ...]
    median: tuple[PeopleFigures, ...]
    worst: tuple[PeopleFigures, ...]
