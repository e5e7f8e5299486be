"""Figures of a model's classes or joints, for the ledger."""

from __future__ import annotations

from podline.documents.evaluation import Evaluation
from podline.documents.metric import Metric
from podline.documents.pose_evaluation import PoseEvaluation
from podline.intervals import wilson_interval


def class_parts(document: Evaluation) -> dict[str, Metric]:
    """Each class's share of right answers."""
    return {found.name: found.accuracy for found in document.per_class}


def joint_parts(document: PoseEvaluation) -> dict[str, Metric]:
    """Each joint's share of labelled places where it is close."""
    return {joint.joint: wilson_interval(joint.close, joint.labelled) for joint in document.joints}
