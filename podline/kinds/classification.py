"""The kind of task that tells one class for each image."""

from __future__ import annotations

from podline.documents.evaluation import Evaluation
from podline.kinds.kind import Code, Kind

CLASSIFICATION = Kind(
    name=Evaluation.kind,
    document=Evaluation,
    examples="examples",
    caption="Accuracy; bars are 95 % intervals (Wilson).",
    lost="Right before, wrong now: {shown} of {lost}",
    says="what {} says",
    lost_hint="",
    own_measures=True,
    objective=Code("podline.training.objective:class_objective"),
    model=Code("podline.models.build:class_model"),
    description=Code("podline.models.counts:describe_classifier"),
    require_fit=Code("podline.input.augmentation:require_room"),
    judge=Code("podline.evaluation.classes:judge"),
    reader=Code("podline.evaluation.predicting_classes:reader"),
    sheet=Code("podline.evaluation.class_sheet:class_sheet"),
    parts=Code("podline.evaluation.parts:class_parts"),
    headline=Code("podline.reporting.class_sections:headline"),
    pair=Code("podline.reporting.class_pairs:pair"),
    lost_examples=Code("podline.reporting.class_pairs:lost_examples"),
    answers=Code("podline.promotion.kinds:ClassAnswers"),
)
