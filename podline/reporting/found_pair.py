"""Two pose networks on the same images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pycocotools.cocoeval import COCOeval

from podline.documents.skeleton import Skeleton
from podline.evaluation import noise
from podline.evaluation.moved_parts import ShareChange, moved_joints
from podline.evaluation.noise import Difference
from podline.evaluation.oks import CloseJoints, close_joints, joint_names


@dataclass(frozen=True)
class FoundPair:
    """Two pose networks.

    Attributes:
        before: the people that the first found, judged.
        after: those of the second.
        skeleton: of the people.
    """

    before: COCOeval
    after: COCOeval
    skeleton: Skeleton

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Of the metrics that can be held against each other so, by name; the one that counts is among them."""
        return noise.average_precisions(self.before, self.after)

    @cached_property
    def people(self) -> tuple[dict[int, CloseJoints], dict[int, CloseJoints]]:
        """Those in truth, by the annotation's id, as the first network found them, and as the second did."""
        return close_joints(self.before), close_joints(self.after)

    def moved(self, names: Sequence[str] = ()) -> dict[str, ShareChange]:
        """How each joint moved, by name."""
        del names  # joints have theirs in the results
        return moved_joints(*self.people, joint_names(self.after))
