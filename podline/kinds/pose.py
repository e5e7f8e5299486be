"""The kind of task that finds people and their joints."""

from __future__ import annotations

from podline.documents.pose_evaluation import PoseEvaluation
from podline.kinds.kind import Code, Kind

POSE = Kind(
    name=PoseEvaluation.kind,
    document=PoseEvaluation,
    examples="instances",
    caption="COCO’s AP over OKS 0.50…0.95, by pycocotools; bars are 95 % intervals (bootstrap over images).",
    lost="Found before, not now: the {shown} images that lost the most joints",
    says="what {} finds",
    lost_hint="; instances that only the first finds are framed, joints are ringed",
    own_measures=False,
    objective=Code("podline.training.pose_objective:pose_objective"),
    model=Code("podline.models.pose:pose_model"),
    description=Code("podline.models.counts:describe_pose_network"),
    require_fit=Code("podline.input.pose_augmentation:require_fit"),
    judge=Code("podline.evaluation.poses:judge"),
    reader=Code("podline.evaluation.predicting_people:reader"),
    sheet=Code("podline.evaluation.pose_sheet:pose_sheet"),
    parts=Code("podline.evaluation.parts:joint_parts"),
    headline=Code("podline.reporting.pose_sections:headline"),
    pair=Code("podline.reporting.pose_pairs:pair"),
    lost_examples=Code("podline.reporting.pose_pairs:lost_examples"),
    answers=Code("podline.promotion.kinds:PoseAnswers"),
)
